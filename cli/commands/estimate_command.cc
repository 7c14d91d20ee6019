#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"
#include "cli/launch/launch_plan.h"
#include "cli/train/find_model.h"
#include "cli/train/train_inputs.h"
#include "runtime/base/byte_size.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/base/gpu_signs.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/printable.h"
#include "runtime/config/file/check_config.h"
#include "runtime/config/file/config_text.h"
#include "runtime/config/memory_estimate.h"
#include "runtime/plan/estimate/model_size.h"
#include "runtime/plan/estimate/predict_memory.h"
#include "runtime/plan/memory/expert_rules.h"
#include "runtime/tokenizer/corpus/tokenizer_folder.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;
using config::MemoryQuestion;
using config::MemoryRow;

// Flags for the prediction of a job only.
struct EstimateJobFlags {
  std::string deepspeed_config;  // "" = no job to predict
  LaunchFlags launch;            // hosts and their slots
  std::optional<std::int64_t> micro_batch;
  std::optional<std::int64_t> tensor_ranks, sequence_ranks, stages, expert_ranks;
  config::TrainJob job;  // only the fields of flags shared with `train`
  std::string device = "auto";
  std::string memory;        // limit per rank; "" = not given
  double expert_load = 1.0;  // see engine::JobShape
};

struct EstimateFlags {
  std::string params, largest_layer_params;  // texts, because 7e9 is also a number
  std::string model;
  std::int64_t num_gpus_per_node = 1;
  std::int64_t num_nodes = 1;
  bool json = false;
  EstimateJobFlags job;
};

// Parses "7000000000" or "7e9".
StatusOr<std::int64_t> ParseCount(const std::string& flag, const std::string& text) {
  if (const auto integer = ParseNumber<std::int64_t>(text)) return *integer;
  const std::optional<double> number = ParseNumber<double>(text);
  const bool is_integer = number.has_value() && *number == std::floor(*number);
  if (is_integer && std::abs(*number) < 9e15) return static_cast<std::int64_t>(*number);
  return InvalidArgumentError(flag + " must be a whole number, not '" + text + "'");
}

StatusOr<plan::ModelSize> SizeOf(const EstimateFlags& flags) {
  const bool has_params = !flags.params.empty() || !flags.largest_layer_params.empty();
  if (has_params && !flags.model.empty()) {
    return InvalidArgumentError("estimate: give either --model or --params, not both");
  }
  if (!flags.model.empty()) {
    DS_ASSIGN_OR_RETURN(const ShareFolder share, ShareFolder::OfThisProgram());
    DS_ASSIGN_OR_RETURN(const std::filesystem::path model, FindModel(flags.model, share));
    return plan::ReadModelSize(model);
  }
  if (flags.params.empty() || flags.largest_layer_params.empty()) {
    return InvalidArgumentError(
        "estimate: give --model, or both --params and --largest_layer_params");
  }
  plan::ModelSize size;
  DS_ASSIGN_OR_RETURN(size.params, ParseCount("--params", flags.params));
  DS_ASSIGN_OR_RETURN(size.largest_layer_params,
                      ParseCount("--largest_layer_params", flags.largest_layer_params));
  return size;
}

void PrintJson(const MemoryQuestion& question, const std::vector<MemoryRow>& rows) {
  Json list = Json::array();
  for (const MemoryRow& row : rows) {
    list.push_back({{"stage", row.stage},
                    {"offload_optimizer", row.offload_optimizer},
                    {"offload_param", row.offload_param},
                    {"zero_init", row.zero_init},
                    {"gpu_bytes", row.gpu_bytes},
                    {"cpu_bytes", row.cpu_bytes}});
  }
  Json stages = Json::array();
  for (const config::ModelStateBytes& bytes : plan::CountRankBytes(question)) {
    stages.push_back({{"stage", stages.size()},
                      {"parameters", bytes.parameters},
                      {"gradients", bytes.gradients},
                      {"optimizer_state", bytes.optimizer_state},
                      {"master_weights", bytes.master_weights},
                      {"total", bytes.total()}});
  }
  std::cout << Json({{"rows", list}, {"rank_bytes", stages}}).dump() << std::endl;
}

std::string FormatBytes(std::int64_t bytes) { return ByteSize(static_cast<std::uint64_t>(bytes)); }

std::string Offloaded(const MemoryRow& row) {
  if (!row.offload_optimizer) return "nothing";
  return row.offload_param ? "optimizer, parameters" : "optimizer";
}

void PrintTable(const MemoryQuestion& question, const std::vector<MemoryRow>& rows) {
  std::cout << fmt::format(
      "{} parameters, {} in the largest layer, on {} {} of {} {}\n"
      "model states only, for 16-bit training with Adam, as DeepSpeed estimates them\n\n"
      "ZeRO  offloaded to the host  zero.Init     per GPU    per host\n",
      question.params, question.largest_layer_params, question.num_nodes,
      question.num_nodes == 1 ? "node" : "nodes", question.num_gpus_per_node,
      question.num_gpus_per_node == 1 ? "GPU" : "GPUs");
  for (const MemoryRow& row : rows) {
    const char* zero_init = row.stage < 3 ? "-" : row.zero_init ? "yes" : "no";
    std::cout << fmt::format("{:>4}  {:<21}  {:<9} {:>11} {:>11}\n", row.stage, Offloaded(row),
                             zero_init, FormatBytes(row.gpu_bytes), FormatBytes(row.cpu_bytes));
  }
  std::cout << plan::DrawRankTable(plan::CountRankBytes(question)) << std::flush;
}

// Checks for GPUs in this environment in the same way as the ranks of this installation.
bool RanksHereFindGpus() {
  const auto program = FindOwnExecutable();
  if (!program.ok()) return false;
  const char* const folders = std::getenv("LD_LIBRARY_PATH");
  const char* const devices = std::getenv("CUDA_VISIBLE_DEVICES");
  return FindGpus(
      FindGpuSigns(program->parent_path() / "dsrank", folders == nullptr ? "" : folders,
                   devices == nullptr ? std::nullopt : std::optional<std::string>(devices)));
}

constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;

// Fills in the number of ranks and their hosts.
Status FindRanks(const EstimateJobFlags& flags, std::int64_t nodes, std::int64_t ranks_per_node,
                 plan::Prediction* question) {
  zero::StepSetting& setting = question->job.setting;
  if (flags.launch.hostfile) {
    DS_ASSIGN_OR_RETURN(const LaunchPlan launch, PlanFromThisHost(flags.launch));
    question->hosts = static_cast<int>(launch.world.hosts.size());
    setting.ranks = launch.world.world_size();
    for (const JobHost& host : launch.world.hosts) {
      question->ranks_of_host = std::max(question->ranks_of_host, host.rank_count());
    }
  } else {
    if (nodes > kMostRanks / ranks_per_node) {
      return InvalidArgumentError("estimate: " + std::to_string(nodes) + " hosts with " +
                                  std::to_string(ranks_per_node) + " ranks each are more than " +
                                  std::to_string(kMostRanks) + " ranks");
    }
    question->hosts = static_cast<int>(nodes);
    question->ranks_of_host = static_cast<int>(ranks_per_node);
    setting.ranks = static_cast<int>(nodes * ranks_per_node);
  }
  setting.ranks_of_host = question->ranks_of_host;
  setting.on_gpu = flags.device == "cuda" || (flags.device == "auto" && RanksHereFindGpus());
  return OkStatus();
}

StatusOr<config::CheckResult> ReadConfig(const EstimateJobFlags& flags, const std::string& model,
                                         const ShareFolder& share, int ranks) {
  config::JobFacts facts{.world_size = ranks, .steps_come_later = true};
  facts.flags.per_device_train_batch_size = flags.micro_batch;
  facts.flags.tp = flags.tensor_ranks;
  facts.flags.sp = flags.sequence_ranks;
  facts.flags.pp = flags.stages;
  facts.flags.ep = flags.expert_ranks;
  DS_ASSIGN_OR_RETURN(facts.model, FindModelFacts(model, share));
  DS_ASSIGN_OR_RETURN(const config::ConfigText text,
                      config::ReadConfigText(flags.deepspeed_config));
  config::CheckResult checked = config::CheckConfig(text.text, text.name, facts);
  if (!checked.ok) return InvalidArgumentError(checked.errors.front().message);
  if (flags.micro_batch) {
    checked.config.batch.train_micro_batch_size_per_gpu = *flags.micro_batch;
  }
  return checked;
}

// Rejects flags without an effect, like train.
Status CheckFlagsCount(const config::TrainJob& job, const config::ParallelConfig& degrees) {
  DS_RETURN_IF_ERROR(CheckAdapterFlags(job));
  DS_RETURN_IF_ERROR(CheckChunkFlags(job));
  const char* stage_flag = job.pipeline_virtual_stages > 0 ? "--pp_virtual_stages" : nullptr;
  if (job.pipeline_schedule != "1f1b") stage_flag = "--pp_schedule";
  return CheckDegreeFlags({.stage_flag = stage_flag,
                           .sequence_flag = job.sequence_kind == "ring" ? "--sp_kind" : nullptr},
                          degrees);
}

// Predicts the memory of each rank of a job from its ds_config. `model` is a folder, a config.json
// or a preset. Hosts come from the hostfile, else there are `nodes` hosts of `ranks_per_node`
// ranks.
StatusOr<int> EstimateJob(const EstimateJobFlags& flags, const std::string& model,
                          std::int64_t nodes, std::int64_t ranks_per_node, bool json) {
  DS_ASSIGN_OR_RETURN(const ShareFolder share, ShareFolder::OfThisProgram());
  DS_ASSIGN_OR_RETURN(const std::filesystem::path path, FindModel(model, share));
  DS_RETURN_IF_ERROR(CheckLengthFits(model, flags.job.seq_len, share));
  plan::Prediction question;
  DS_ASSIGN_OR_RETURN(models::DecoderSpec decoder, plan::ReadJobModel(path));
  DS_RETURN_IF_ERROR(FindRanks(flags, nodes, ranks_per_node, &question));
  DS_ASSIGN_OR_RETURN(question.job,
                      engine::DescribeJob(flags.job, std::move(decoder), question.job.setting));
  question.job.packs_documents = tokenizer::HasTokenizer(path);  // `train` packs tokenized texts
  question.job.expert_load = flags.expert_load;
  DS_ASSIGN_OR_RETURN(config::CheckResult checked,
                      ReadConfig(flags, model, share, question.job.setting.ranks));
  question.config = std::move(checked.config);
  DS_RETURN_IF_ERROR(engine::TakeMoeSection(question.config.moe, &question.job.model));
  DS_RETURN_IF_ERROR(CheckFlagsCount(flags.job, question.config.parallel).WithContext("estimate"));
  if (flags.expert_load > 1.0 && question.config.parallel.expert == 1) {
    return InvalidArgumentError(
        "estimate: --expert_load needs expert parallelism: set --ep or the config's "
        "expert_parallel.autoep_size");
  }
  question.job.efficiency = std::move(checked.data_efficiency);
  DS_RETURN_IF_ERROR(engine::CheckMemoryIsKnown(question.config, question.job));
  if (!flags.memory.empty()) {
    DS_ASSIGN_OR_RETURN(question.capacity, plan::ParseMemory(flags.memory));
  }
  const plan::Prediction prediction = plan::MakePrediction(std::move(question));
  if (json) {
    std::cout << ToJson(prediction).dump() << std::endl;
  } else {
    std::cout << Printable(ToText(prediction)) << std::flush;
  }
  return kExitOk;
}

void AddChunkFlags(CLI::App& app, EstimateJobFlags* flags) {
  app.add_option(FlagNames("sp_chunk"), flags->job.sp_chunk, "as for train (default: all tokens)")
      ->check(WholeNumber(1))
      ->type_name("TOKENS");
  app.add_option(FlagNames("sp_offload"), flags->job.sp_offload, "as for train, with --sp_chunk")
      ->type_name("cpu|FOLDER");
}

void AddAdapterFlags(CLI::App& app, config::TrainJob* job) {
  BeginFlagGroup(app, "Fine-tuning");
  app.add_option(FlagNames("lora_rank"), job->lora_rank, "as for train (default: 0, none)")
      ->check(WholeNumber(0, models::kMostLoraRank))
      ->type_name("R");
  OfferValues(
      app.add_option(FlagNames("lora_targets"), job->lora_targets, "as for train")->expected(1, -1),
      {"all-linear", "NAME"});
  app.add_flag(FlagNames("lora_dora"), job->lora_dora, "as for train");
  app.add_option(FlagNames("lora_dropout"), job->lora_dropout, "as for train")
      ->check(FractionBelow1())
      ->type_name("P");
  TakeOneOf(app.add_option(FlagNames("quantize_base"), job->quantize_base, "as for train"),
            {"nf4", "nf4-double", "int8"});
  app.add_option(FlagNames("lora_adapter"), job->lora_adapter, "as for train")->type_name("DIR");
}

// Adds flags for the parallel degrees and for the trained part of the model.
void AddPartFlags(CLI::App& app, EstimateJobFlags* flags) {
  BeginFlagGroup(app, "Parallelism");
  app.add_option(FlagNames("tp"), flags->tensor_ranks, "as for train (default: the config's)")
      ->check(WholeNumber(1))
      ->type_name("N");
  app.add_option(FlagNames("sp"), flags->sequence_ranks, "as for train (default: the config's)")
      ->check(WholeNumber(1))
      ->type_name("N");
  TakeOneOf(app.add_option(FlagNames("sp_kind"), flags->job.sequence_kind,
                           "as for train (default: ulysses)"),
            {"ulysses", "ring"});
  app.add_option(FlagNames("pp"), flags->stages, "as for train (default: the config's)")
      ->check(WholeNumber(1))
      ->type_name("N");
  TakeOneOf(app.add_option(FlagNames("pp_schedule"), flags->job.pipeline_schedule,
                           "as for train (default: 1f1b)"),
            pipeline::ScheduleNames());
  app.add_option(FlagNames("pp_virtual_stages"), flags->job.pipeline_virtual_stages, "as for train")
      ->check(WholeNumber(0))
      ->type_name("N");
  app.add_option(FlagNames("ep"), flags->expert_ranks, "as for train (default: the config's)")
      ->check(WholeNumber(1))
      ->type_name("N");
  AddAdapterFlags(app, &flags->job);
  app.add_option(FlagNames("freeze"), flags->job.freeze, "as for train")
      ->expected(1, -1)
      ->type_name("PATTERN");
}

void AddEstimateJobFlags(CLI::App& app, EstimateJobFlags* flags) {
  BeginFlagGroup(app, "Job");
  app.add_option(FlagNames("deepspeed_config"), flags->deepspeed_config,
                 "predict the memory of each rank of this job, and show settings that reduce it")
      ->type_name("FILE");
  app.add_option(FlagNames("micro_batch"), flags->micro_batch,
                 "samples of a micro-batch on each rank (default: the config's)")
      ->check(WholeNumber(1, 1 << 24))
      ->type_name("N");
  app.add_option(FlagNames("seq_len"), flags->job.seq_len, "tokens per sample (default: 256)")
      ->check(WholeNumber(1, 1 << 24))
      ->type_name("S");
  BeginFlagGroup(app, "Memory and offload");
  app.add_option(FlagNames("memory"), flags->memory,
                 "memory available to each rank, on its GPU or its host; shows which settings fit")
      ->type_name("BYTES");
  OfferValues(app.add_option(FlagNames("recompute"), flags->job.recompute,
                             "as for train (default: from the config)"),
              config::RecomputeForms());
  AddChunkFlags(app, flags);
  app.add_option(FlagNames("tile_mlp"), flags->job.mlp_tiles, "as for train (default: 1)")
      ->check(WholeNumber(1))
      ->type_name("N");
  app.add_option(FlagNames("expert_load"), flags->expert_load,
                 "plan for a rank with experts that get FACTOR times their even share of the "
                 "routed tokens (default: 1), limited to the largest number that they can get")
      ->check(NumberBetween(1, plan::kMostExpertLoad))
      ->type_name("FACTOR");
  AddPartFlags(app, flags);
  BeginFlagGroup(app, "Hosts and ranks");
  app.add_option(FlagNames("hostfile", "-H"), flags->launch.hostfile, "the job's hosts")
      ->type_name("FILE");
  TakeOneOf(
      app.add_option(FlagNames("device"), flags->device, "device of the ranks (default: auto)"),
      {"auto", "cpu", "cuda"});
}

void AddFlags(CLI::App& app, EstimateFlags* flags) {
  app.add_flag("--json", flags->json,
               "print one JSON object with rows and rank_bytes, sizes in bytes");
  BeginFlagGroup(app, "Model");
  app.add_option(FlagNames("model"), flags->model, "count the parameters of this model")
      ->type_name("DIR|FILE|PRESET");
  app.add_option(FlagNames("params"), flags->params, "parameters of the model")->type_name("P");
  app.add_option(FlagNames("largest_layer_params"), flags->largest_layer_params,
                 "parameters of its largest module")
      ->type_name("L");
  BeginFlagGroup(app, "Hosts and ranks");
  app.add_option(FlagNames("num_gpus_per_node") + "," + FlagNames("num_gpus"),
                 flags->num_gpus_per_node, "ranks per host (default: 1)")
      ->check(WholeNumber(1))
      ->type_name("G");
  app.add_option(FlagNames("num_nodes"), flags->num_nodes, "number of hosts (default: 1)")
      ->check(WholeNumber(1))
      ->type_name("N");
  AddEstimateJobFlags(app, &flags->job);
}

// Returns the first given flag that AddEstimateJobFlags declares; "" if there is none.
std::string FindOfJob(const CLI::App& app) {
  const auto options = app.get_options();
  auto each = std::find(options.begin(), options.end(), app.get_option("--deepspeed_config"));
  while (each != options.end() && (*each)->count() == 0) ++each;
  return each == options.end() ? "" : (*each)->get_name();
}

}  // namespace

// `dsrun estimate` prints the memory for a model's states under ZeRO 2 and 3 with every kind of
// offload.
StatusOr<int> EstimateCommand(const Invocation& invocation) {
  EstimateFlags flags;
  FlagParser parser("estimate --model DIR | --params P --largest_layer_params L [flags]",
                    "Show the memory of a model's states under ZeRO 2 and 3 with every kind of "
                    "offload, by DeepSpeed's formula, and the memory of a rank of this trainer at "
                    "each stage. With --deepspeed_config: the memory of each rank of that job, "
                    "including activations. Loads no weights.");
  AddFlags(parser.app(), &flags);
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
  if (parsed.help_shown) return kExitOk;
  if (!flags.job.deepspeed_config.empty()) {
    if (flags.model.empty()) {
      return InvalidArgumentError("estimate: --deepspeed_config needs a --model");
    }
    return EstimateJob(flags.job, flags.model, flags.num_nodes, flags.num_gpus_per_node,
                       flags.json);
  }
  if (const std::string flag = FindOfJob(parser.app()); !flag.empty()) {
    return InvalidArgumentError("estimate: " + flag + " is of a job: give --deepspeed_config, too");
  }
  DS_ASSIGN_OR_RETURN(const plan::ModelSize size, SizeOf(flags));
  const MemoryQuestion question{.params = size.params,
                                .largest_layer_params = size.largest_layer_params,
                                .num_gpus_per_node = flags.num_gpus_per_node,
                                .num_nodes = flags.num_nodes};
  const auto rows = config::EstimateMemory(question);
  if (!rows.ok()) return rows.status().WithContext("estimate");
  if (flags.json) {
    PrintJson(question, *rows);
  } else {
    PrintTable(question, *rows);
  }
  return kExitOk;
}

}  // namespace ds::cli
