#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/base/parse_number.h"
#include "runtime/config/sections/elasticity.h"
#include "runtime/config/sections/elasticity_section.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMaxElasticWorldSize = std::int64_t{1} << 24;
constexpr std::size_t kLineWidth = 80;

// Reads WORLD_SIZE from the environment, the fallback of version 0.2; returns nothing if it is no
// number.
std::optional<std::int64_t> ReadWorldSize() {
  const char* const text = std::getenv("WORLD_SIZE");
  if (text == nullptr) return std::nullopt;
  const std::optional<std::int64_t> number = ParseNumber<std::int64_t>(text);
  return number.value_or(0) < 1 ? std::nullopt : number;
}

void PrintJson(const config::ElasticBatch& batch) {
  const Json micro = batch.micro_batch_size ? Json(*batch.micro_batch_size) : Json();
  std::cout << Json({{"final_batch_size", batch.final_batch_size},
                     {"valid_gpus", batch.valid_gpus},
                     {"micro_batch_size", micro}})
                   .dump()
            << std::endl;
}

// Prints the label, then the numbers, wrapped and aligned.
void PrintCounts(const std::string& label, const std::vector<std::int64_t>& counts) {
  std::string line = label;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::string word = std::to_string(counts[i]) + (i + 1 < counts.size() ? "," : "");
    if (line.size() + 1 + word.size() > kLineWidth) {
      std::cout << line << "\n";
      line = std::string(label.size(), ' ');
    }
    line += " " + word;
  }
  std::cout << line << "\n";
}

void PrintText(const config::ElasticBatch& batch) {
  std::cout << "train batch size " << batch.final_batch_size << "\n";
  if (batch.micro_batch_size) std::cout << "micro batch size " << *batch.micro_batch_size << "\n";
  PrintCounts("numbers of GPUs ", batch.valid_gpus);
  std::cout << std::flush;
}

}  // namespace

// `dsrun elastic -c CONFIG [-w N] [--json]` prints the train batch size from the config's
// elasticity section, the compatible numbers of GPUs, and the micro-batch size for N GPUs.
StatusOr<int> ElasticCommand(const Invocation& invocation) {
  std::string path;
  std::int64_t world_size = 0;
  bool json = false;
  FlagParser parser("elastic -c CONFIG [-w N] [--json]",
                    "Show the batch size of a ds_config's elasticity section, and the numbers of "
                    "GPUs that fit it.");
  CLI::App& app = parser.app();
  app.add_option(FlagNames("config", "-c"), path, "the ds_config file")->type_name("FILE");
  app.add_option(FlagNames("world_size", "-w"), world_size,
                 "GPUs of the job; version 0.2 needs it (default: WORLD_SIZE)")
      ->check(WholeNumber(0, kMaxElasticWorldSize))
      ->type_name("N");
  app.add_flag("--json", json,
               "print one JSON object: final_batch_size, valid_gpus, micro_batch_size");
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
  if (parsed.help_shown) return kExitOk;
  if (path.empty()) return InvalidArgumentError("elastic: no config given; use -c CONFIG");
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  config::ElasticQuestion question{.num_gpus_of_environment = ReadWorldSize()};
  if (world_size > 0) question.num_gpus = world_size;
  DS_ASSIGN_OR_RETURN(const config::ElasticBatch batch,
                      config::ElasticBatchOf(text, path, question));
  if (json) {
    PrintJson(batch);
  } else {
    PrintText(batch);
  }
  return kExitOk;
}

}  // namespace ds::cli
