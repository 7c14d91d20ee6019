#include "cli/commands/check_command.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <cstdlib>
#include <iostream>

#include "cli/exit_codes.h"
#include "cli/flag_parser.h"
#include "runtime/base/files.h"
#include "runtime/config/check_config.h"
#include "runtime/config/elasticity_section.h"

namespace ds::cli {
namespace {

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20;
constexpr int kMaxWorldSize = 1 << 24;

// What a scheduler has seen of the config must be what is in it.
void CompareWithScheduler(const std::string& path, config::CheckResult* result) {
  const char* const seen = std::getenv(config::kSchedulerElasticity);
  if (seen == nullptr || !result->ok) return;
  const Status status = config::AgreesWithScheduler(*result, seen);
  if (status.ok()) return;
  result->ok = false;
  result->errors.push_back({"elasticity", path + ": " + status.message()});
}

void PrintText(const config::CheckResult& result, const std::string& path, int world_size) {
  for (const config::Issue& error : result.errors) std::cerr << "error: " << error.message << "\n";
  for (const config::Issue& warning : result.warnings) {
    std::cerr << "warning: " << warning.message << "\n";
  }
  std::cerr << std::flush;
  if (!result.ok) return;
  const config::BatchConfig& batch = result.config.batch;
  std::cout << path << " is good for " << world_size << (world_size == 1 ? " rank" : " ranks")
            << ": " << batch.train_batch_size
            << " samples a step = " << batch.train_micro_batch_size_per_gpu << " per rank x "
            << batch.gradient_accumulation_steps << " accumulated x " << world_size
            << ", ZeRO stage " << result.config.zero_optimization.stage << std::endl;
}

}  // namespace

StatusOr<int> CheckCommand(const Invocation& invocation) {
  std::string path;
  int world_size = 1;
  bool json = false;
  FlagParser parser("check CONFIG [--world_size N] [--json]",
                    "Say all that is wrong with a ds_config. Needs no GPU and no model.");
  CLI::App& app = parser.app();
  app.add_option("CONFIG", path, "the ds_config file");
  app.add_option(FlagNames("world_size"), world_size, "ranks that share the batch (default: 1)")
      ->check(CLI::Range(1, kMaxWorldSize).description(""))
      ->type_name("N");
  app.add_flag("--json", json, "print one JSON object: ok, errors, warnings, config");
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::Rest::kRefused));
  if (parsed.help_shown) return kExitOk;
  if (path.empty()) return InvalidArgumentError("check: no CONFIG given; see dsrun check --help");
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  config::CheckResult result = config::CheckConfig(text, path, world_size);
  CompareWithScheduler(path, &result);
  if (json) {
    std::cout << config::ToCheckReport(result).dump(2) << std::endl;
  } else {
    PrintText(result, path, world_size);
  }
  return result.ok ? kExitOk : kExitUsage;
}

}  // namespace ds::cli
