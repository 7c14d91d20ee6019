#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands/command_table.h"
#include "cli/commands/estimate_job.h"
#include "cli/estimate/model_size.h"
#include "cli/flags/flag_parser.h"
#include "cli/flags/number_checks.h"
#include "cli/train/find_model.h"
#include "runtime/base/byte_size.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/parse_number.h"
#include "runtime/config/memory_estimate.h"
#include "runtime/config/model_state.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;
using config::MemoryQuestion;
using config::MemoryRow;

struct EstimateFlags {
  std::string params, largest_layer_params;  // texts, as 7e9 is a number here too
  std::string model;
  std::int64_t num_gpus_per_node = 1;
  std::int64_t num_nodes = 1;
  bool json = false;
  EstimateJobFlags job;
};

// "7000000000" or "7e9".
StatusOr<std::int64_t> ParseCount(const std::string& flag, const std::string& text) {
  if (const auto whole = ParseNumber<std::int64_t>(text)) return *whole;
  const std::optional<double> number = ParseNumber<double>(text);
  const bool is_whole = number.has_value() && *number == std::floor(*number);
  if (is_whole && std::abs(*number) < 9e15) return static_cast<std::int64_t>(*number);
  return InvalidArgumentError(flag + " must be a whole number, not '" + text + "'");
}

StatusOr<ModelSize> SizeOf(const EstimateFlags& flags) {
  const bool has_params = !flags.params.empty() || !flags.largest_layer_params.empty();
  if (has_params && !flags.model.empty()) {
    return InvalidArgumentError("estimate: give either --model or --params, not both");
  }
  if (!flags.model.empty()) {
    DS_ASSIGN_OR_RETURN(const ShareFolder share, ShareFolder::OfThisProgram());
    DS_ASSIGN_OR_RETURN(const std::filesystem::path model, FindModel(flags.model, share));
    return ReadModelSize(model);
  }
  if (flags.params.empty() || flags.largest_layer_params.empty()) {
    return InvalidArgumentError(
        "estimate: give --model, or both --params and --largest_layer_params");
  }
  ModelSize size;
  DS_ASSIGN_OR_RETURN(size.params, ParseCount("--params", flags.params));
  DS_ASSIGN_OR_RETURN(size.largest_layer_params,
                      ParseCount("--largest_layer_params", flags.largest_layer_params));
  return size;
}

// The bytes of one of `dsrun train`'s ranks at each stage, in bf16 with Adam: nothing is offloaded.
std::vector<config::ModelStateBytes> CountRankBytes(const MemoryQuestion& question) {
  config::DsConfig config;
  config.bf16.enabled = true;
  const std::int64_t ranks = question.num_gpus_per_node * question.num_nodes;
  std::vector<config::ModelStateBytes> stages;
  for (int stage = 0; stage <= 3; ++stage) {
    stages.push_back(
        config::CountModelStateBytes({.trainable = question.params,
                                      .shard_ranks = ranks,
                                      .sharding = config::ShardingOfStage(stage, ranks),
                                      .types = config::ChooseStateTypes(config)}));
  }
  return stages;
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
  for (const config::ModelStateBytes& bytes : CountRankBytes(question)) {
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

void PrintRankTable(const MemoryQuestion& question) {
  std::cout << "\nheld by each rank of `dsrun train` in bf16 with Adam, nothing offloaded\n\n"
               "ZeRO  parameters   gradients   optimizer     masters    together\n";
  int stage = 0;
  for (const config::ModelStateBytes& bytes : CountRankBytes(question)) {
    std::cout << fmt::format("{:>4} {:>11} {:>11} {:>11} {:>11} {:>11}\n", stage++,
                             FormatBytes(bytes.parameters), FormatBytes(bytes.gradients),
                             FormatBytes(bytes.optimizer_state), FormatBytes(bytes.master_weights),
                             FormatBytes(bytes.total()));
  }
}

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
  PrintRankTable(question);
  std::cout << std::flush;
}

void AddFlags(CLI::App& app, EstimateFlags* flags) {
  app.add_option(FlagNames("model"), flags->model, "count the parameters of this model")
      ->type_name("DIR|FILE|PRESET");
  app.add_option(FlagNames("params"), flags->params, "parameters of the model")->type_name("P");
  app.add_option(FlagNames("largest_layer_params"), flags->largest_layer_params,
                 "parameters of its largest module")
      ->type_name("L");
  app.add_option(FlagNames("num_gpus_per_node") + "," + FlagNames("num_gpus"),
                 flags->num_gpus_per_node, "ranks of a host (default: 1)")
      ->check(WholeNumber(1))
      ->type_name("G");
  app.add_option(FlagNames("num_nodes"), flags->num_nodes, "default: 1")
      ->check(WholeNumber(1))
      ->type_name("N");
  app.add_flag("--json", flags->json,
               "print one JSON object with rows and rank_bytes, sizes in bytes");
  AddEstimateJobFlags(app, &flags->job);
}

}  // namespace

// dsrun estimate: what a model's states need in bytes on a GPU and on a host, under ZeRO 2 and 3
// and every kind of offload.
StatusOr<int> EstimateCommand(const Invocation& invocation) {
  EstimateFlags flags;
  FlagParser parser("estimate --model DIR | --params P --largest_layer_params L [flags]",
                    "Show the memory that a model's states need under ZeRO 2 and 3 and every kind "
                    "of offload, by DeepSpeed's formula, and what a rank of this trainer holds at "
                    "each stage. With --deepspeed_config: what each rank of that job will hold, "
                    "activations included. Loads no weights.");
  AddFlags(parser.app(), &flags);
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::Rest::kRefused));
  if (parsed.help_shown) return kExitOk;
  if (!flags.job.deepspeed_config.empty()) {
    if (flags.model.empty()) {
      return InvalidArgumentError("estimate: --deepspeed_config needs a --model");
    }
    return EstimateJob(flags.job, flags.model, flags.num_nodes, flags.num_gpus_per_node,
                       flags.json);
  }
  DS_ASSIGN_OR_RETURN(const ModelSize size, SizeOf(flags));
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
