#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <optional>

#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"
#include "cli/train/find_model.h"
#include "cli/train/train_flags.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/printable.h"
#include "runtime/config/file/check_config.h"
#include "runtime/config/file/config_text.h"
#include "runtime/config/file/resolved_config.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/sections/elasticity_section.h"

namespace ds::cli {
namespace {

constexpr int kMaxWorldSize = 1 << 24;

// What a scheduler has seen of the config must be what is in it.
void CompareWithScheduler(const std::string& path, config::CheckResult* result) {
  const char* const seen = std::getenv(config::kSchedulerElasticity);
  if (seen == nullptr || !result->ok) return;
  const Status status = config::AgreesWithScheduler(result->given, seen);
  if (status.ok()) return;
  result->ok = false;
  result->errors.push_back({"elasticity", path + ": " + status.message()});
}

// What the config says of the model must hold of it, by the sentences of a job that is launched. Of
// which kind sequence ranks are is said by a flag of training: a ring takes any number of them, and
// what it refuses no kind takes.
void CompareWithModel(const std::string& model, const ShareFolder& share,
                      config::CheckResult* result) {
  if (!result->ok) return;
  const config::ParallelConfig& degrees = result->config.parallel;
  Status status = CheckDegreesFit(model, degrees, share, models::SequenceKind::kRing);
  if (status.ok()) status = CheckRulesFit(model, result->given, degrees.tensor, share);
  if (status.ok()) return;
  result->ok = false;
  result->errors.push_back({"", std::string(status.message())});
}

// What every "auto" stands for, and why.
void PrintAutos(const config::CheckResult& result) {
  for (const std::string& key : result.autos) {
    const nlohmann::ordered_json* const value = config::FindIn(result.resolved, key);
    if (value == nullptr) continue;
    std::cout << key << " = " << value->dump() << ", " << result.origins[key].get<std::string>()
              << "\n";
  }
}

void PrintIssues(const config::CheckResult& result) {
  for (const config::Issue& error : result.errors)
    std::cerr << "error: " << Printable(error.message) << "\n";
  for (const config::Issue& warning : result.warnings) {
    std::cerr << "warning: " << Printable(warning.message) << "\n";
  }
  std::cerr << std::flush;
}

void PrintText(const config::CheckResult& result, const std::string& name, int world_size) {
  PrintAutos(result);
  const config::BatchConfig& batch = result.config.batch;
  std::cout << name << " is good for " << world_size << (world_size == 1 ? " rank" : " ranks")
            << ": " << batch.train_batch_size
            << " samples a step = " << batch.train_micro_batch_size_per_gpu << " per rank x "
            << batch.gradient_accumulation_steps << " accumulated x "
            << world_size / result.config.parallel.ranks_of_a_sample() << ", ZeRO stage "
            << result.config.zero_optimization.stage << std::endl;
}

// The fewest ranks that the degrees of a config allow.
int CountFewestRanks(const nlohmann::ordered_json& resolved) {
  std::int64_t ranks = 1;
  for (const config::Key key :
       {config::keys::kPipelineStages, config::keys::kTensorParallelAutotpSize,
        config::keys::kSequenceParallelSize}) {
    const nlohmann::ordered_json* const degree = config::FindIn(resolved, key);
    if (degree == nullptr || !degree->is_number_integer()) continue;
    ranks *= std::clamp<std::int64_t>(degree->get<std::int64_t>(), 1, kMaxWorldSize / ranks);
  }
  return static_cast<int>(ranks);
}

struct CheckFlags {
  std::string config;
  std::string model;
  std::optional<int> world_size;
  config::JobFacts facts;
  bool json = false;
};

void AddFlags(CLI::App& app, CheckFlags* flags) {
  app.add_option("CONFIG", flags->config, "the ds_config file, or its text as base64");
  app.add_option(FlagNames("world_size"), flags->world_size,
                 "all ranks of the job (default: the fewest that its degrees allow)")
      ->check(WholeNumber(1, kMaxWorldSize))
      ->type_name("N");
  app.add_option(FlagNames("model"), flags->model,
                 "the model to resolve \"auto\" from; the config has to fit it")
      ->type_name("DIR|FILE|PRESET");
  app.add_option(FlagNames("steps"), flags->facts.total_steps, "optimizer steps in all")
      ->check(WholeNumber(1))
      ->type_name("N");
  app.add_flag("--json", flags->json,
               "print the config in force as a ds_config with origins, or ok, errors, warnings");
  AddIgnoreUnknownKeys(app, &flags->facts.ignore_unknown_keys);
  AddTrainingFlags(app, &flags->facts.flags);
}

// Sets the number of ranks, where nobody has said it.
config::CheckResult CheckForRanks(const config::ConfigText& config, CheckFlags* flags) {
  flags->facts.world_size = flags->world_size.value_or(1);
  config::CheckResult result = config::CheckConfig(config.text, config.name, flags->facts);
  const int fewest = result.resolved.is_object() ? CountFewestRanks(result.resolved) : 1;
  if (flags->world_size || fewest == 1) return result;
  flags->facts.world_size = fewest;
  return config::CheckConfig(config.text, config.name, flags->facts);
}

}  // namespace

StatusOr<int> CheckCommand(const Invocation& invocation) {
  CheckFlags flags;
  FlagParser parser(
      "check CONFIG [--world_size N] [--model DIR] [--json]",
      "Say all that is wrong with a ds_config, and what its \"auto\" stands for. Needs "
      "no GPU.");
  AddFlags(parser.app(), &flags);
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::Rest::kRefused));
  if (parsed.help_shown) return kExitOk;
  if (flags.config.empty()) {
    return InvalidArgumentError("check: no CONFIG given; see dsrun check --help");
  }
  std::optional<ShareFolder> share;
  if (!flags.model.empty()) {
    DS_ASSIGN_OR_RETURN(share, ShareFolder::OfThisProgram());
    DS_ASSIGN_OR_RETURN(flags.facts.model, FindModelFacts(flags.model, *share));
  }
  DS_ASSIGN_OR_RETURN(const config::ConfigText config, config::ReadConfigText(flags.config));
  flags.facts.steps_come_later = !flags.facts.total_steps;
  config::CheckResult result = CheckForRanks(config, &flags);
  CompareWithScheduler(config.name, &result);
  if (share) CompareWithModel(flags.model, *share, &result);
  if (flags.json && !result.ok) {
    std::cout << config::ToErrorReport(result).dump(2) << std::endl;
    return kExitUsage;
  }
  PrintIssues(result);
  if (flags.json) {
    std::cout << config::ToResolvedConfigJson(result).dump(2) << std::endl;
  } else if (result.ok) {
    PrintText(result, config.name, flags.facts.world_size);
  }
  return result.ok ? kExitOk : kExitUsage;
}

}  // namespace ds::cli
