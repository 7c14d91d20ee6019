#include "cli/commands/bench_memory_command.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/flags/flag_parser.h"
#include "cli/flags/number_checks.h"
#include "runtime/base/exit_codes.h"
#include "runtime/offload/measure_memory.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;
using offload::MemorySpeed;

struct BenchMemoryFlags {
  std::int64_t size_mib = 1024;
  int threads = 0;  // 0: one after the other
  bool json = false;
};

void AddBenchMemoryFlags(CLI::App& app, BenchMemoryFlags* flags) {
  app.add_option("WHAT", "memory: reading and writing it in place")->required();
  app.add_option("--size", flags->size_mib,
                 "MiB that all threads go over, many times what caches have (default: 1024)")
      ->check(WholeNumber(1, 1 << 20))
      ->type_name("MIB");
  app.add_option(FlagNames("threads"), flags->threads,
                 "this many alone (default: 1, 2, 4 ... up to the cores that may be used)")
      ->check(WholeNumber(1, 4096))
      ->type_name("N");
  app.add_flag("--json", flags->json, "print one JSON document in place of the table");
}

Json ToJson(const MemorySpeed& speed) {
  return {{"threads", speed.threads}, {"gb_per_second", speed.bytes_per_second / 1e9}};
}

std::string ToLine(const MemorySpeed& speed) {
  const double all = speed.bytes_per_second / 1e9;
  return fmt::format("{:>7}  {:>8.2f}  {:>13.2f}\n", speed.threads, all, all / speed.threads);
}

}  // namespace

StatusOr<int> BenchMemoryCommand(const Invocation& invocation) {
  BenchMemoryFlags flags;
  FlagParser parser("bench memory [flags]",
                    "Measure how fast this host's memory is read and written in place, which "
                    "bounds the updates of optimizers on the host.");
  AddBenchMemoryFlags(parser.app(), &flags);
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::Rest::kRefused));
  if (parsed.help_shown) return kExitOk;
  const std::vector<int> counts =
      flags.threads > 0 ? std::vector<int>{flags.threads} : offload::ListThreadCounts();
  Json results = Json::array();
  if (!flags.json) std::cout << "threads      GB/s  GB/s a thread\n" << std::flush;
  for (const int threads : counts) {
    const auto speed = offload::MeasureMemory(threads, flags.size_mib << 20);
    if (!speed.ok()) return speed.status().WithContext("bench memory");
    results.push_back(ToJson(*speed));
    if (!flags.json) std::cout << ToLine(*speed) << std::flush;
  }
  if (flags.json) {
    std::cout << Json({{"size_bytes", flags.size_mib << 20}, {"results", results}}).dump()
              << std::endl;
  }
  return kExitOk;
}

}  // namespace ds::cli
