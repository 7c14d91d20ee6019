#include "tests/e2e/planned_memory.h"

#include <gmock/gmock.h>

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/places.h"

namespace ds::testing {

using ::testing::HasSubstr;

std::string NameOf(const Job& job) {
  return job.model + "-" + std::to_string(job.ranks) + "-stage" + std::to_string(job.stage) +
         (job.bf16 ? "-bf16-" : "-fp32-") + std::to_string(job.micro_batch) + "x" +
         std::to_string(job.accumulation) + "-" + job.recompute +
         (job.mlp_tiles > 1 ? "-tiles" : "") + (job.offload ? "-files" : "") +
         (job.ratio < 1.0 ? "-partly" : "") + (job.updates_in_backward ? "-updates" : "") +
         (job.rolls_back ? "-back" : "") + "-" + job.optimizer +
         (job.zero.empty() ? "" : "-" + job.zero.begin().key()) +
         (job.tensor > 1 ? "-tp" + std::to_string(job.tensor) : "") +
         (job.sequence > 1 ? "-sp" + std::to_string(job.sequence) + job.sequence_kind : "") +
         (job.seq_len != 128 ? "-" + std::to_string(job.seq_len) : "") +
         (job.stages > 1 ? "-pp" + std::to_string(job.stages) + job.schedule : "") +
         (job.trained.empty() ? "" : job.trained.front() + job.trained.back()) +
         (job.trained.size() > 2 ? std::to_string(job.trained.size()) : "") +
         (job.config.empty() ? "" : "-" + std::to_string(job.config.dump().size())) +
         (job.partitions_activations ? "-parts" : "") +
         (job.buffered_parts > 0 ? "-buffer" + std::to_string(job.buffered_parts) : "") +
         (job.documents ? "-documents" : "") +
         (job.expert > 1 ? "-ep" + std::to_string(job.expert) : "");
}

std::vector<Job> ModelChoice::WithModels(const std::vector<Job>& jobs,
                                         const std::vector<std::string>& models) {
  std::vector<Job> chosen;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    for (std::size_t model = 0; model < models.size(); ++model) {
      if (!chooses_every_model() && model != i % models.size()) continue;
      chosen.push_back(jobs[i]);
      chosen.back().model = models[model];
    }
  }
  return chosen;
}

std::string NameModelChoice(const ::testing::TestParamInfo<bool>& info) {
  return info.param ? "EveryModel" : "ModelsInTurn";
}

void PlannedMemory::SetUp() {
  Write("gpt2.json", {{"model_type", "gpt2"},
                      {"vocab_size", 4000},
                      {"n_positions", 128},
                      {"n_embd", 192},
                      {"n_layer", 6},
                      {"n_head", 6},
                      {"resid_pdrop", 0.0},
                      {"embd_pdrop", 0.0},
                      {"attn_pdrop", 0.0}});
  Write("llama.json", {{"model_type", "llama"},
                       {"vocab_size", 3000},
                       {"hidden_size", 192},
                       {"intermediate_size", 512},
                       {"num_hidden_layers", 6},
                       {"num_attention_heads", 6},
                       {"num_key_value_heads", 3},
                       {"max_position_embeddings", 128},
                       {"tie_word_embeddings", false}});
}

void PlannedMemory::Write(const std::string& name, const nlohmann::json& content) const {
  ASSERT_TRUE(WriteFileAtomically(folder_.path() / name, content.dump()).ok());
}

std::string PlannedMemory::ModelOf(const Job& job) const {
  return PathOf(job.documents ? job.model : job.model + ".json");
}

std::vector<std::string> PlannedMemory::TrainWords(const Job& job) const {
  const std::string config = NameOf(job) + ".ds.json";
  nlohmann::json zero = {{"stage", job.stage}};
  zero.update(job.zero);
  if (job.offload) {
    const nlohmann::json files = {{"device", "nvme"}, {"nvme_path", folder_.path().string()}};
    zero["offload_optimizer"] = files;
    zero["offload_optimizer"]["ratio"] = job.ratio;
    zero["offload_optimizer"]["super_offload"] = job.updates_in_backward;
    zero["offload_param"] = files;
    zero["offload_param"]["max_in_cpu"] = 0;
  }
  const bool is_right = job.updates_in_backward && !job.rolls_back;  // whatever the norm is
  nlohmann::json activation = {{"partition_activations", job.partitions_activations}};
  if (job.buffered_parts > 0) {
    activation["contiguous_memory_optimization"] = true;
    activation["number_checkpoints"] = job.buffered_parts;
  }
  nlohmann::json all = {
      {"train_micro_batch_size_per_gpu", job.micro_batch},
      {"gradient_accumulation_steps", job.accumulation},
      {"gradient_clipping", is_right ? 0.0 : 1.0},
      {"bf16", {{"enabled", job.bf16}, {"check_grad_overflow", !is_right}}},
      {"optimizer", {{"type", job.optimizer}, {"params", {{"lr", 1e-3}}}}},
      {"aio", {{"block_size", 65536}}},
      {"tensor_parallel", {{"autotp_size", job.tensor}}},
      {"sequence_parallel_size", job.sequence},
      {"pipeline", {{"stages", job.stages}}},
      {"expert_parallel", {{"enabled", job.expert > 1}, {"autoep_size", job.expert}}},
      {"activation_checkpointing", activation},
      {"zero_optimization", zero}};
  all.update(job.config);
  Write(config, all);
  std::vector<std::string> words = {"--num_gpus",
                                    std::to_string(job.ranks),
                                    "train",
                                    "--model",
                                    ModelOf(job),
                                    "--data",
                                    job.documents         ? PathOf("lines.jsonl")
                                    : !job.tokens.empty() ? PathOf(job.tokens)
                                                          : DS_SOURCE_DIR "/LICENSE",
                                    "--data_cache",
                                    PathOf("cache"),
                                    "--deepspeed_config",
                                    PathOf(config),
                                    "--seq_len",
                                    std::to_string(job.seq_len),
                                    "--steps",
                                    "2",
                                    "--recompute",
                                    job.recompute,
                                    "--tile_mlp",
                                    std::to_string(job.mlp_tiles)};
  if (job.stages > 1) words.insert(words.end(), {"--pp_schedule", job.schedule});
  if (job.sequence > 1) words.insert(words.end(), {"--sp_kind", job.sequence_kind});
  words.insert(words.end(), job.trained.begin(), job.trained.end());
  return words;
}
nlohmann::json PlannedMemory::EstimateOf(const Job& job,
                                         const std::vector<std::string>& more) const {
  std::vector<std::string> command = {DS_BIN_DIR "/dsrun",
                                      "estimate",
                                      "--json",
                                      "--device",
                                      "cpu",
                                      "--model",
                                      ModelOf(job),
                                      "--deepspeed_config",
                                      PathOf(NameOf(job) + ".ds.json"),
                                      "--num_gpus",
                                      std::to_string(job.ranks),
                                      "--seq_len",
                                      std::to_string(job.seq_len),
                                      "--recompute",
                                      job.recompute,
                                      "--tile_mlp",
                                      std::to_string(job.mlp_tiles),
                                      "--pp_schedule",
                                      job.schedule,
                                      "--sp_kind",
                                      job.sequence_kind};
  command.insert(command.end(), job.trained.begin(), job.trained.end());
  command.insert(command.end(), more.begin(), more.end());
  const ProgramResult result = RunProgram(command);
  EXPECT_EQ(result.status, 0) << result.err;
  return nlohmann::json::parse(result.out);
}

// Where nothing but data ranks and stages is, other calls of these kinds carry a few numbers.
void PlannedMemory::ExpectPlannedTraffic(const Job& job, const nlohmann::json& measured,
                                         const nlohmann::json& planned) {
  if (job.tensor * job.sequence * job.expert > 1 || job.optimizer == "Muon") return;
  constexpr double kOfNumbers = 8192.0, kOfHeaders = 0.01;
  for (const auto& [kind, name] : {std::pair("all_gather", "all_gather"),
                                   {"reduce_scatter", "reduce_scatter"},
                                   {"all_reduce", "all_reduce"},
                                   {"all_to_all", "all_to_all"},
                                   {"p2p", "between_stages"}}) {
    const nlohmann::json of_kind = measured.value(kind, nlohmann::json{{"bytes", 0}});
    const double bytes = planned[name];
    EXPECT_NEAR(of_kind["bytes"].get<double>(), bytes, kOfNumbers + kOfHeaders * bytes)
        << kind << " " << measured << " planned " << planned;
  }
}

void PlannedMemory::ExpectPlanned(const Job& job) {
  SCOPED_TRACE(NameOf(job));
  const auto run_dir = folder_.path() / NameOf(job);
  const ProgramResult result = RunProgram(DsrunCommand(run_dir, TrainWords(job)));
  ASSERT_EQ(result.status, 0) << result.err;
  const std::string stage_0 = job.stages > 1 ? " on stage 0" : "";
  EXPECT_THAT(result.err, HasSubstr("memory of a rank's tensors" + stage_0 + ": planned "));
  const auto steps = ReadJsonLines(run_dir / "metrics.jsonl");
  ASSERT_EQ(steps.size(), 2u);
  const nlohmann::json& plan = steps[0]["memory"]["planned"];
  EXPECT_FALSE(steps[1]["memory"].contains("planned")) << "it does not change";
  const bool grows =
      job.config.contains("curriculum_learning") || job.config.contains("data_efficiency");
  for (const nlohmann::json& step : steps) {
    const nlohmann::json& memory = step["memory"];
    const double planned = plan[step["step"] == 1 ? "first_step" : "peak"];
    EXPECT_NEAR(memory["tensors"]["peak"].get<double>(), planned, 0.05 * planned) << memory;
    // The plan's activations are those of the steps that see the most.
    if (grows && step["step"] == 1) continue;
    const double activations = memory["activations"]["host"]["peak"];
    const double planned_activations = plan["peak_activations"];
    EXPECT_NEAR(activations, planned_activations, 0.05 * planned) << memory;
  }
  ExpectPlannedTraffic(job, steps[1]["communicated"], plan["traffic"]);
  const nlohmann::json estimated = EstimateOf(job)["planned"];
  if (job.stages == 1) {
    EXPECT_EQ(estimated, plan);
  } else {
    EXPECT_GE(estimated["peak"], plan["peak"]) << "it is that of the stage that holds the most";
    ExpectPlannedOnStages(job, result.err);
  }
}

nlohmann::json PlannedMemory::MeasureStep(const Job& job) {
  const auto run_dir = folder_.path() / NameOf(job);
  const ProgramResult result = RunProgram(DsrunCommand(run_dir, TrainWords(job)));
  EXPECT_EQ(result.status, 0) << result.err;
  const auto steps = ReadJsonLines(run_dir / "metrics.jsonl");
  return steps.empty() ? nlohmann::json() : steps.back();
}

double PlannedMemory::MeasurePeak(const Job& job) {
  const nlohmann::json step = MeasureStep(job);
  return step.empty() ? 0.0 : step["memory"]["tensors"]["peak"].get<double>();
}

void PlannedMemory::ExpectPlannedOnStages(const Job& job, const std::string& said) {
  for (int stage = 0; stage < job.stages; ++stage) {
    const std::string words = "memory of a rank's tensors on stage " + std::to_string(stage);
    const std::size_t begin = said.find(words);
    ASSERT_NE(begin, std::string::npos) << said;
    const std::size_t percent = said.find('(', begin);
    EXPECT_NEAR(std::stod(said.substr(percent + 1)), 100.0, 5.0) << said.substr(begin, 200);
  }
}

}  // namespace ds::testing
