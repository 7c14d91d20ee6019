// What a job's memory is planned to be, by `dsrun estimate` and by its own rank, is what the rank
// then measures, and what cannot fit is refused before it starts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/e2e/planned_memory.h"
#include "tests/places.h"
#include "tests/support/memory_group.h"
#include "tests/support/pair_cover.h"
#include "tests/support/requirement.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;

class PlannedJobs : public PlannedMemory, public ModelChoice {};

INSTANTIATE_TEST_SUITE_P(Models, PlannedJobs, ::testing::Bool(), NameModelChoice);

// Every family, precision and stage, with activations stored and recomputed; else each pair of
// them.
TEST_P(PlannedJobs, IsMeasuredWithEveryModelAndPrecision) {
  std::vector<Job> jobs;
  std::vector<Traits> traits;
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool bf16 : {false, true}) {
      for (const char* recompute : {"none", "full"}) {
        for (const int ranks : {1, 2}) {
          for (const char* model : {"gpt2", "llama"}) {
            jobs.push_back({.stage = stage,
                            .bf16 = bf16,
                            .micro_batch = 4,
                            .recompute = recompute,
                            .model = model,
                            .ranks = ranks});
            traits.push_back({"stage " + std::to_string(stage), bf16 ? "bf16" : "fp32", recompute,
                              std::to_string(ranks), model});
          }
        }
      }
    }
  }
  std::vector<std::size_t> chosen = CoverPairs(traits);
  if (chooses_every_model()) {
    chosen.resize(jobs.size());
    std::iota(chosen.begin(), chosen.end(), std::size_t{0});
  }
  for (const std::size_t job : chosen) {
    if (HasFatalFailure()) return;
    ExpectPlanned(jobs[job]);
  }
}

TEST_F(PlannedMemory, IsMeasuredWithLargerAndMoreMicroBatches) {
  ExpectPlanned({.stage = 0, .micro_batch = 4});
  ExpectPlanned({.stage = 1, .micro_batch = 2, .accumulation = 2});
  ExpectPlanned({.stage = 3, .micro_batch = 8});
  ExpectPlanned({.stage = 2, .bf16 = true, .micro_batch = 2, .accumulation = 3});
}

TEST_F(PlannedMemory, IsMeasuredWhereSomeActivationsAreComputedAgain) {
  for (const char* recompute : {"attention", "every:2"}) {
    ExpectPlanned({.stage = 2, .micro_batch = 8, .recompute = recompute});
  }
  // By the ds_config, which no flag overrules.
  const nlohmann::json section = {
      {"activation_checkpointing", {{"synchronize_checkpoint_boundary", true}}}};
  ExpectPlanned({.stage = 1, .micro_batch = 8, .recompute = "auto", .config = section});
  ExpectPlanned({.stage = 2, .micro_batch = 16, .mlp_tiles = 8});
  ExpectPlanned({.stage = 3, .micro_batch = 16, .mlp_tiles = 4, .model = "llama"});
}

TEST_P(PlannedJobs, IsMeasuredInFp16) {
  const nlohmann::json fp16 = {{"bf16", {{"enabled", false}}},
                               {"fp16", {{"enabled", true}, {"initial_scale_power", 8}}}};
  for (const Job& job : WithModels({{.stage = 1, .micro_batch = 8, .config = fp16},
                                    {.stage = 3, .micro_batch = 8, .config = fp16}})) {
    ExpectPlanned(job);
  }
}

TEST_P(PlannedJobs, IsMeasuredUnderMuon) {
  for (const Job& job : WithModels({{.stage = 0, .optimizer = "Muon"},
                                    {.stage = 1, .optimizer = "Muon"},
                                    {.stage = 3, .optimizer = "Muon"},
                                    {.stage = 2, .bf16 = true, .ranks = 1, .optimizer = "Muon"}})) {
    ExpectPlanned(job);
  }
}

TEST_P(PlannedJobs, IsMeasuredOnTensorRanks) {
  std::vector<Job> jobs = {
      {.stage = 0, .micro_batch = 4, .tensor = 2},
      {.stage = 2, .bf16 = true, .micro_batch = 4, .ranks = 4, .tensor = 2},
  };
  for (const bool parts : {false, true}) {
    jobs.push_back({.stage = 3,
                    .micro_batch = 16,
                    .recompute = "full",
                    .tensor = 2,
                    .partitions_activations = parts});
  }
  // The model has six layers.
  for (const int parts : {6, 12}) {
    jobs.push_back({.stage = 3,
                    .micro_batch = 16,
                    .accumulation = 2,
                    .recompute = "full",
                    .tensor = 2,
                    .partitions_activations = true,
                    .buffered_parts = parts});
  }
  for (const Job& job : WithModels(jobs)) ExpectPlanned(job);
}

TEST_P(PlannedJobs, IsMeasuredOnSequenceRanks) {
  for (const Job& job :
       WithModels({{.stage = 0, .micro_batch = 16, .sequence = 2},
                   {.stage = 2, .bf16 = true, .micro_batch = 16, .ranks = 4, .sequence = 2},
                   {.stage = 3, .micro_batch = 32, .recompute = "full", .sequence = 2},
                   {.stage = 3, .micro_batch = 16, .recompute = "attention", .sequence = 2}})) {
    ExpectPlanned(job);
  }
}

TEST_P(PlannedJobs, IsMeasuredOnRanksOfARing) {
  for (Job job :
       WithModels({{.stage = 0, .micro_batch = 16, .sequence = 2},
                   {.stage = 2, .bf16 = true, .micro_batch = 16, .ranks = 4, .sequence = 4},
                   {.stage = 3, .micro_batch = 32, .recompute = "full", .sequence = 2},
                   {.stage = 3, .micro_batch = 16, .recompute = "attention", .sequence = 2}})) {
    job.sequence_kind = "ring";
    ExpectPlanned(job);
  }
}

// Weights, which no rank of these shares, are a small part of it.
TEST_F(PlannedMemory, FourRanksHaveFourTimesTheSequenceInTheMemoryOfOne) {
  Write("long.json", {{"model_type", "llama"},
                      {"vocab_size", 300},
                      {"hidden_size", 96},
                      {"intermediate_size", 256},
                      {"num_hidden_layers", 6},
                      {"num_attention_heads", 6},
                      {"num_key_value_heads", 2},
                      {"max_position_embeddings", 4096},
                      {"tie_word_embeddings", false}});
  const Job one{.micro_batch = 4, .model = "long", .ranks = 1, .seq_len = 512};
  Job longer = one, ring = one;
  longer.seq_len = ring.seq_len = 2048;
  ring.ranks = ring.sequence = 4;
  ring.sequence_kind = "ring";
  const double alone = MeasurePeak(one);
  EXPECT_GT(MeasurePeak(longer), 3.0 * alone);
  const double shared = MeasurePeak(ring);
  EXPECT_LT(shared, 1.1 * alone);
  RecordProperty("share_of_one_rank_percent", static_cast<int>(100.0 * shared / alone));
}

// The stages of a pipeline hold unlike much: parameters, and micro-batches on their way.
TEST_P(PlannedJobs, IsMeasuredOnEveryStageOfAPipeline) {
  std::vector<Job> jobs;
  for (const char* schedule : {"1f1b", "gpipe"}) {
    jobs.push_back(
        {.stage = 0, .micro_batch = 8, .accumulation = 4, .stages = 2, .schedule = schedule});
  }
  for (const int stage : {1, 2, 3}) {
    jobs.push_back({.stage = stage,
                    .bf16 = true,
                    .micro_batch = 8,
                    .accumulation = 3,
                    .ranks = 4,
                    .stages = 2});
  }
  jobs.push_back({.stage = 0,
                  .micro_batch = 8,
                  .accumulation = 5,
                  .recompute = "full",
                  .ranks = 3,
                  .stages = 3});
  for (const Job& job : WithModels(jobs)) ExpectPlanned(job);
}

// What a step gathers and reduces is what metrics say, whatever number of micro-batches it has.
TEST_F(PlannedMemory, BytesOfAStepOfStagesDoNotGrowWithItsMicroBatches) {
  for (const auto& [stage, schedule] : {std::pair(2, "1f1b"), std::pair(3, "interleaved")}) {
    Job job{.stage = stage, .micro_batch = 2, .model = "llama", .ranks = 4, .stages = 2};
    job.schedule = schedule;
    const auto measure = [&](int micro_batches) {
      job.accumulation = micro_batches;
      return MeasureStep(job)["communicated"];
    };
    const nlohmann::json four = measure(4), eight = measure(8);
    EXPECT_GT(four["reduce_scatter"]["bytes"], 1'000'000);
    EXPECT_EQ(four["reduce_scatter"], eight["reduce_scatter"]);
    EXPECT_EQ(four["all_gather"], eight["all_gather"]);
  }
}

// Chunks of their own blocks, and gradients of weights that come behind those of inputs.
TEST_P(PlannedJobs, IsMeasuredWithEveryScheduleOfAPipeline) {
  std::vector<Job> jobs;
  for (const int stage : {0, 2}) {
    for (const char* schedule : {"interleaved", "zb-h1", "zb-v"}) {
      jobs.push_back({.stage = stage,
                      .micro_batch = 8,
                      .accumulation = 4,
                      .ranks = stage == 0 ? 2 : 4,
                      .stages = 2,
                      .schedule = schedule});
    }
  }
  for (const Job& job : WithModels(jobs)) ExpectPlanned(job);
}

TEST_P(PlannedJobs, IsMeasuredWithEveryScheduleOfLayersThatAreComputedAgain) {
  std::vector<Job> jobs;
  for (const char* schedule : {"interleaved", "zb-h1", "zb-v"}) {
    jobs.push_back({.stage = 3,
                    .bf16 = true,
                    .micro_batch = 8,
                    .accumulation = 4,
                    .recompute = "full",
                    .ranks = 4,
                    .stages = 2,
                    .schedule = schedule});
  }
  for (const Job& job : WithModels(jobs)) ExpectPlanned(job);
}

// A model's folder with a tokenizer, and texts of which several go into a sample.
TEST_P(PlannedJobs, IsMeasuredWithSeveralDocumentsInASample) {
  std::string lines;
  for (int i = 0; i < 400; ++i) {
    lines += R"({"text": ")" + std::string(static_cast<std::size_t>(20 + i % 50), 'x') + "\"}\n";
  }
  ASSERT_TRUE(WriteFileAtomically(PathOf("lines.jsonl"), lines).ok());
  for (const char* model : {"gpt2", "llama"}) {
    const std::string name = std::string(model) + "-cuts";
    ASSERT_TRUE(std::filesystem::create_directory(folder_.path() / name));
    std::filesystem::copy_file(PathOf(model + std::string(".json")), PathOf(name + "/config.json"));
    std::filesystem::copy_file(DS_SOURCE_DIR "/tests/unit/tokenizer/goldens/gpt2.tokenizer.json",
                               PathOf(name + "/tokenizer.json"));
  }
  for (Job job :
       WithModels({{.stage = 2, .micro_batch = 8, .documents = true},
                   {.stage = 3, .micro_batch = 8, .recompute = "full", .documents = true}})) {
    job.model += "-cuts";
    ExpectPlanned(job);
  }
}

TEST_F(PlannedMemory, IsMeasuredWithSecondaryShardsAndRounding) {
  ExpectPlanned({.stage = 3, .ranks = 4, .zero = {{"zero_hpz_partition_size", 2}}});
  ExpectPlanned({.stage = 3,
                 .model = "llama",
                 .ranks = 4,
                 .zero = {{"zero_quantized_weights", true}, {"zero_hpz_partition_size", 2}}});
  ExpectPlanned({.stage = 3, .ranks = 4, .zero = {{"zero_quantized_gradients", true}}});
}

TEST_F(PlannedMemory, CountsOffloadedStateInFilesAndItsBuffersInMemory) {
  for (const auto& [ranks, ratio] : {std::pair(1, 1.0), std::pair(2, 1.0), std::pair(2, 0.5)}) {
    const Job job{.stage = 3,
                  .bf16 = true,
                  .micro_batch = 4,
                  .ranks = ranks,
                  .offload = true,
                  .ratio = ratio};
    ExpectPlanned(job);
    if (HasFatalFailure()) return;
    const auto steps = ReadJsonLines(folder_.path() / NameOf(job) / "metrics.jsonl");
    const nlohmann::json& memory = steps[1]["memory"];
    std::int64_t in_files = 0;
    for (const char* use : {"parameters", "gradients", "optimizer_state", "master_weights"}) {
      in_files += memory[use]["file"]["peak"].get<std::int64_t>();
    }
    const nlohmann::json& offload = steps[0]["memory"]["planned"]["away"];
    EXPECT_NEAR(offload["files"].get<double>(), static_cast<double>(in_files), 0.02 * in_files);
    EXPECT_LE(memory["other"]["mapped"]["peak"], offload["file_buffers"]) << memory;
  }
}

TEST_F(PlannedMemory, IsMeasuredWhereBlocksAreUpdatedInTheBackwardPass) {
  for (const int stage : {1, 3}) {
    ExpectPlanned({.stage = stage, .micro_batch = 4, .offload = true, .updates_in_backward = true});
  }
  ExpectPlanned({.stage = 3,
                 .micro_batch = 4,
                 .offload = true,
                 .updates_in_backward = true,
                 .rolls_back = true});
}

TEST_F(PlannedMemory, IsMeasuredOfStateInEightBitsAndOfZenFlow) {
  ExpectPlanned({.stage = 1, .micro_batch = 4, .optimizer = "AdamW8bit"});
  for (const bool bf16 : {false, true}) {
    ExpectPlanned({.stage = 2,
                   .bf16 = bf16,
                   .micro_batch = 4,
                   .zero = {{"zenflow",
                             {{"topk_ratio", 0.1},
                              {"select_strategy", "step"},
                              {"select_interval", 4},
                              {"update_interval", 2},
                              {"overlap_step", bf16}}},
                            {"offload_optimizer", {{"device", "cpu"}}}}});
  }
}

TEST_F(PlannedMemory, RefusesMemoryThatNoHostHasBeforeARankStarts) {
  Write("wide.json", {{"model_type", "llama"},
                      {"vocab_size", 128000},
                      {"hidden_size", 65536},
                      {"intermediate_size", 262144},
                      {"num_hidden_layers", 200},
                      {"num_attention_heads", 64},
                      {"max_position_embeddings", 128}});
  const auto run_dir = folder_.path() / "refused";
  const ProgramResult refused = RunProgram(DsrunCommand(run_dir, TrainWords({.model = "wide"})));
  EXPECT_EQ(refused.status, 3);
  EXPECT_THAT(refused.err, HasSubstr("its 2 ranks will hold "));
  EXPECT_THAT(refused.err, HasSubstr(" of memory are available"));
  EXPECT_THAT(refused.err, HasSubstr("planned for each rank: "));
  EXPECT_THAT(refused.err, HasSubstr("use more hosts, a smaller model or offload to NVMe"));
  EXPECT_EQ(ReadJson(run_dir / "verdict.json")["cause"], "preflight");
  EXPECT_FALSE(std::filesystem::exists(run_dir / "metrics.jsonl"));
}

// The number behind `words` in the text.
std::int64_t NumberAfter(const std::string& words, const std::string& text) {
  const std::size_t found = text.find(words);
  EXPECT_NE(found, std::string::npos) << text;
  return found == std::string::npos ? 0 : std::stoll(text.substr(found + words.size()));
}

TEST_F(PlannedMemory, RefusesAJobAboveAGroupsLimitAndTheAdviceTrains) {
  const auto group = MemoryGroup::Make(std::uint64_t{900} << 20);
  if (!group) return SkipWithout("memory_groups", "no memory control group can be made here");
  const auto run = [&](const std::string& name, const Job& job, bool overcommit = false) {
    std::vector<std::string> command = group->Enter();
    std::vector<std::string> words = TrainWords(job);
    if (overcommit) words.emplace_back("--allow_overcommit");
    const std::vector<std::string> dsrun = DsrunCommand(folder_.path() / name, words);
    command.insert(command.end(), dsrun.begin(), dsrun.end());
    return RunProgram(command);
  };
  const Job large{.stage = 2, .micro_batch = 128};
  const ProgramResult refused = run("refused", large);
  EXPECT_EQ(refused.status, 3) << refused.err;
  const std::string hint = ReadJson(folder_.path() / "refused/verdict.json")["hint"];
  const std::int64_t advised = NumberAfter("each by itself:\n  a micro-batch of ", hint);
  EXPECT_GT(advised, 1);
  EXPECT_LT(advised, large.micro_batch);
  const ProgramResult fits = run("fits", {.stage = 2, .micro_batch = advised});
  EXPECT_EQ(fits.status, 0) << fits.err;

  const ProgramResult overcommitted = run("overcommitted", large, /*overcommit=*/true);
  EXPECT_THAT(overcommitted.err, HasSubstr("its 2 ranks will hold "));
  EXPECT_EQ(ReadJson(folder_.path() / "overcommitted/verdict.json")["cause"], "out_of_memory")
      << overcommitted.err;
}

TEST_F(PlannedMemory, TheLargestMicroBatchFitsTheLimitOfARank) {
  const Job job{.stage = 2, .micro_batch = 2};
  static_cast<void>(TrainWords(job));
  const nlohmann::json tight = EstimateOf(job, {"--memory", "300M"});
  EXPECT_TRUE(tight["fits"]) << tight;
  const std::int64_t largest = tight["largest_micro_batch"];
  EXPECT_GT(largest, 2);
  const auto bytes_with = [&](std::int64_t samples) {
    const Job larger{.stage = 2, .micro_batch = samples};
    static_cast<void>(TrainWords(larger));
    return EstimateOf(larger)["rank_host"].get<std::int64_t>();
  };
  EXPECT_LE(bytes_with(largest), 300 << 20);
  EXPECT_GT(bytes_with(largest + 1), 300 << 20);
  EXPECT_FALSE(EstimateOf(job, {"--memory", "1M"})["fits"]);
  EXPECT_FALSE(EstimateOf(job)["changes"].empty());
}

TEST_F(PlannedMemory, MoreRanksThanAnIntHasAreRefused) {
  const ProgramResult result =
      RunProgram({DS_BIN_DIR "/dsrun", "estimate", "--model", "gpt2-demo", "--deepspeed_config",
                  DS_SOURCE_DIR "/configs/default_ds_config.json", "--num_nodes", "65536",
                  "--num_gpus", "65536"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err,
              HasSubstr("65536 hosts with 65536 ranks each are more than 1048576 ranks"));
}

}  // namespace
}  // namespace ds::testing
