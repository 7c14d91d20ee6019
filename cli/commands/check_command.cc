#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <sstream>

#include "cli/commands/command_table.h"
#include "cli/commands/foreign_train_flags.h"
#include "cli/flags/flag_parser.h"
#include "cli/train/find_model.h"
#include "cli/train/job_config.h"
#include "cli/train/judge_training.h"
#include "cli/train/train_flags.h"
#include "runtime/base/byte_size.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/printable.h"
#include "runtime/base/saturating.h"
#include "runtime/config/file/check_config.h"
#include "runtime/config/file/config_text.h"
#include "runtime/config/file/resolved_config.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/sections/elasticity_section.h"
#include "runtime/plan/estimate/predict_memory.h"
#include "runtime/process/available_memory.h"

namespace ds::cli {
namespace {

constexpr int kMaxWorldSize = 1 << 24;

// Checks that the config matches the elasticity settings seen by a scheduler.
void CompareWithScheduler(const std::string& path, config::CheckResult* result) {
  const char* const seen = std::getenv(config::kSchedulerElasticity);
  if (seen == nullptr || !result->ok) return;
  const Status status = config::AgreesWithScheduler(result->given, seen);
  if (status.ok()) return;
  result->ok = false;
  result->errors.push_back({"elasticity", path + ": " + status.message()});
}

// Adds the errors of a status, one per line.
void AddErrors(const Status& status, config::CheckResult* result) {
  std::istringstream lines(std::string(status.message()));
  for (std::string line; std::getline(lines, line);) result->errors.push_back({"", line});
  result->ok = false;
}

// Prints the resolved value of every "auto" and its origin.
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

// Returns the minimum number of ranks for the degrees of a config.
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

// Flags of `train` that do not affect a ds_config, and the alternatives.
constexpr RefusedFlag kOfTrainAlone[] = {
    {"device", "check starts no rank, so leave it out"},
    {"from_hf_trainer", "dsrun translate FILE --out ds.json writes the ds_config; check that"},
    {"recipe", "train --recipe checks its config as it starts"}};

struct CheckFlags {
  std::string config;
  TrainFlags train;  // the job of the config
  std::optional<int> world_size, num_gpus;
  config::JobFacts facts;
  bool json = false;
};

void AddFlags(CLI::App& app, CheckFlags* flags) {
  app.add_option("CONFIG", flags->config, "the ds_config file, or its text as base64");
  app.add_option(FlagNames("world_size"), flags->world_size,
                 "ranks of the job (default: the fewest that its degrees allow)")
      ->check(WholeNumber(1, kMaxWorldSize))
      ->type_name("N");
  app.add_option(FlagNames("num_gpus"), flags->num_gpus,
                 "ranks of the job, on this host; also checks the host's memory")
      ->check(WholeNumber(1, kMaxWorldSize))
      ->type_name("N");
  app.add_flag("--json", flags->json,
               "print the config in force as a ds_config with origins, or ok, errors, warnings");
  AddTrainFlags(app, &flags->train);
}

// Checks the config. If the user has not set the number of ranks, it is the minimum.
config::CheckResult CheckForRanks(const config::ConfigText& config, CheckFlags* flags) {
  if (flags->num_gpus) flags->world_size = flags->num_gpus;
  flags->facts.world_size = flags->world_size.value_or(1);
  config::CheckResult result = JudgeJobConfig(config, flags->train, flags->facts);
  const int fewest = result.resolved.is_object() ? CountFewestRanks(result.resolved) : 1;
  if (flags->world_size || fewest == 1) return result;
  flags->facts.world_size = fewest;
  return JudgeJobConfig(config, flags->train, flags->facts);
}

// Returns the result of `train`'s checks for the job that these flags describe.
StatusOr<JudgedTraining> JudgeJob(const CheckFlags& flags, const ShareFolder& share,
                                  config::CheckResult* result) {
  DS_ASSIGN_OR_RETURN(TrainInputs inputs,
                      GatherTrainInputs(flags.train, share, flags.facts.world_size));
  const int ranks = flags.facts.world_size;
  DS_ASSIGN_OR_RETURN(
      JudgedTraining judged,
      JudgeTraining(inputs,
                    {.all = ranks, .of_host = ranks, .on_this_host = flags.num_gpus.has_value()},
                    share));
  inputs.notices.insert(inputs.notices.end(), judged.notices.begin(), judged.notices.end());
  for (std::string& notice : inputs.notices) {
    const bool is_said =
        std::any_of(result->warnings.begin(), result->warnings.end(),
                    [&](const config::Issue& warning) { return warning.message == notice; });
    if (!is_said) result->warnings.push_back({"", std::move(notice)});
  }
  return judged;
}

// Rejects --num_gpus ranks that do not fit into this host's memory, like the preflight of train.
Status CheckMemory(const CheckFlags& flags, const JudgedTraining& judged) {
  const auto available = ReadAvailableMemory();
  const MemoryNeed& memory = judged.memory;
  const std::int64_t rank = memory.on_cpu.bytes;
  if (!flags.num_gpus || !available || rank == 0 || memory.only_warns) return OkStatus();
  const std::int64_t needed = memory.shared_bytes + SaturatingProduct(*flags.num_gpus, rank);
  const auto here = static_cast<std::int64_t>(*available);
  if (needed <= here) return OkStatus();
  const std::int64_t left = std::max<std::int64_t>(0, here - memory.shared_bytes);
  const auto size = [](std::int64_t bytes) { return ByteSize(static_cast<std::uint64_t>(bytes)); };
  return ResourceExhaustedError(std::to_string(*flags.num_gpus) + " ranks on this host will hold " +
                                size(needed) + ", " + size(rank) + " each, and " + size(here) +
                                " of memory are available: " + memory.on_cpu.parts + "\n" +
                                plan::AdviseOnMemory(judged.predicted->config,
                                                     judged.predicted->shape,
                                                     left / *flags.num_gpus) +
                                "\n--allow_overcommit starts them all the same");
}

// Also reports errors of the job. Returns train's exit status.
StatusOr<int> CheckJob(const CheckFlags& flags, config::CheckResult* result) {
  DS_ASSIGN_OR_RETURN(const ShareFolder share, ShareFolder::OfThisProgram());
  const StatusOr<JudgedTraining> judged = JudgeJob(flags, share, result);
  if (!judged.ok()) {
    AddErrors(judged.status(), result);
    return kExitUsage;
  }
  const Status fits = CheckMemory(flags, *judged);
  if (fits.ok()) return kExitOk;
  result->errors.push_back({"", std::string(fits.message())});
  result->ok = false;
  return kExitPreflight;
}

// Prints all errors, or the result of a valid config.
void Print(const CheckFlags& flags, const config::CheckResult& result, const std::string& name) {
  if (flags.json && !result.ok) {
    std::cout << config::ToErrorReport(result).dump(2) << std::endl;
    return;
  }
  PrintIssues(result);
  if (flags.json) {
    std::cout << config::ToResolvedConfigJson(result).dump(2) << std::endl;
  } else if (result.ok) {
    PrintText(result, name, flags.facts.world_size);
  }
}

}  // namespace

StatusOr<int> CheckCommand(const Invocation& invocation) {
  CheckFlags flags;
  FlagParser parser(
      "check CONFIG [--world_size N] [flags of train] [--json]",
      "Validate a ds_config and show the values of its \"auto\"; with --model or --data, also "
      "validate that job as train does (it reads only the first rows of the data). Needs no GPU.");
  AddFlags(parser.app(), &flags);
  TakeForeignTrainFlags(&parser);
  parser.Refuse(kOfTrainAlone);
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
  if (parsed.help_shown) return kExitOk;
  if (flags.config.empty()) flags.config = flags.train.deepspeed_config;
  if (flags.config.empty()) {
    return InvalidArgumentError("check: no CONFIG given; see dsrun check --help");
  }
  flags.train.deepspeed_config = flags.config;
  flags.facts.flags = flags.train.training;
  flags.facts.ignore_unknown_keys = flags.train.ignore_unknown_keys;
  flags.facts.total_steps = flags.train.steps;
  flags.facts.steps_come_later = !flags.facts.total_steps;
  if (!flags.train.model.empty()) {
    DS_ASSIGN_OR_RETURN(const ShareFolder share, ShareFolder::OfThisProgram());
    DS_ASSIGN_OR_RETURN(flags.facts.model, FindModelFacts(flags.train.model, share));
  }
  DS_ASSIGN_OR_RETURN(const config::ConfigText config, config::ReadConfigText(flags.config));
  config::CheckResult result = CheckForRanks(config, &flags);
  CompareWithScheduler(config.name, &result);
  int status = result.ok ? kExitOk : kExitUsage;
  const bool has_job = !flags.train.model.empty() || !flags.train.data.empty();
  if (result.ok && has_job) {
    DS_ASSIGN_OR_RETURN(status, CheckJob(flags, &result));
  }
  Print(flags, result, config.name);
  return status;
}

}  // namespace ds::cli
