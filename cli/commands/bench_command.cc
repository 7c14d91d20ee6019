#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <array>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "cli/commands/bench_parts.h"
#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"
#include "cli/flags/launch_flags.h"
#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/job/run_directory.h"
#include "cli/session/job_session.h"
#include "proto/job_directory.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/suggest.h"
#include "runtime/offload/bandwidth.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

// The largest input per rank. An all-gather needs the same amount again for each rank.
constexpr std::int64_t kLargestSize = std::int64_t{1} << 36;

struct BenchFlags {
  std::string what;
  std::array<bool, config::kBenchCollectives.size()> chosen{};
  std::string min_size = "1K";
  std::string max_size = "64M";
  std::string bw_unit = "Gbps";
  config::CommBenchJob job;
  bool json = false;
};

void AddBenchFlags(CLI::App& app, BenchFlags* flags) {
  app.add_option("WHAT", flags->what, "comm: collectives between the ranks");
  for (std::size_t i = 0; i < flags->chosen.size(); ++i) {
    const std::string name(config::kBenchCollectives[i]);
    const std::string help = name == "pt2pt" ? "measure messages from rank 0 to the last"
                                             : "measure it (default: all collectives)";
    app.add_flag(FlagNames(name), flags->chosen[i], help);
  }
  app.add_option(FlagNames("min_size"), flags->min_size,
                 "bytes of one rank's input at first, K, M or G behind them (default: 1K)")
      ->type_name("SIZE");
  app.add_option(FlagNames("max_size"), flags->max_size,
                 "the size is doubled up to this (default: 64M)")
      ->type_name("SIZE");
  app.add_option(FlagNames("trials"), flags->job.trials, "timed calls a size (default: 50)")
      ->check(WholeNumber(1))
      ->type_name("N");
  app.add_option(FlagNames("warmups"), flags->job.warmups, "calls before them (default: 5)")
      ->check(WholeNumber(0))
      ->type_name("N");
  app.add_option(FlagNames("dtype"), flags->job.dtype, "of the elements (default: float32)")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16"}).description(""))
      ->type_name("float32|float16|bfloat16");
  app.add_option(FlagNames("bw_unit"), flags->bw_unit, "of the tables (default: Gbps)")
      ->check(CLI::IsMember({"Gbps", "GBps"}).description(""))
      ->type_name("Gbps|GBps");
  app.add_flag(FlagNames("encrypt"), flags->job.encrypt,
               "encrypt the traffic between CPU ranks of several hosts (TLS 1.3)");
  app.add_flag("--json", flags->json, "print one JSON document in place of the tables");
}

// Parses sizes; "64M" is 64 MiB.
StatusOr<std::int64_t> ParseSize(const std::string& flag, const std::string& text) {
  const std::size_t digits = text.find_first_not_of("0123456789");
  const std::string unit = digits == std::string::npos ? "" : text.substr(digits);
  const int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
  const auto count = ParseNumber<std::int64_t>(std::string_view(text).substr(0, digits));
  if (shift < 0 || !count || *count < 1 || *count > (kLargestSize >> shift)) {
    return InvalidArgumentError(flag + " " + text +
                                ": give bytes from 1 to 64G, for example 65536, 64K or 1M");
  }
  return *count << shift;
}

StatusOr<config::CommBenchJob> MakeJob(const BenchFlags& flags) {
  const std::string known[] = {"comm", "io", "memory"};
  if (flags.what.empty()) {
    return InvalidArgumentError(
        "bench: say what to measure: bench comm, bench io PATH or bench memory");
  }
  if (flags.what != "comm") {
    return InvalidArgumentError("bench: '" + flags.what +
                                "' cannot be measured; try bench comm, bench io or bench memory" +
                                DidYouMean(flags.what, known));
  }
  config::CommBenchJob job = flags.job;
  DS_ASSIGN_OR_RETURN(job.min_size, ParseSize("--min_size", flags.min_size));
  DS_ASSIGN_OR_RETURN(job.max_size, ParseSize("--max_size", flags.max_size));
  if (job.max_size < job.min_size) {
    return InvalidArgumentError("bench: --max_size " + flags.max_size +
                                " is less than --min_size " + flags.min_size);
  }
  for (std::size_t i = 0; i < flags.chosen.size(); ++i) {
    if (flags.chosen[i]) job.collectives.emplace_back(config::kBenchCollectives[i]);
  }
  if (job.collectives.empty()) {
    job.collectives.assign(config::kBenchCollectives.begin(), config::kBenchCollectives.end());
  }
  return job;
}

RankProgram MakeProgram(const config::CommBenchJob& job) {
  return {.argv = {"", "bench", std::string(::dsrun::v1::kJobDirectory) + "/bench.json"},
          .files = {{"bench.json", config::ToJson(job)}}};
}

// Reads the steps that rank 0 has reported. After a restart, only the last attempt counts.
StatusOr<BenchResults> ReadResults(const config::CommBenchJob& job, const JobPlan& plan,
                                   const RunDirectory& run_directory) {
  BenchResults results{.job = job, .world_size = plan.world.world_size()};
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(run_directory.path() / "metrics.jsonl"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    auto step = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (step.is_discarded()) return DataLossError("metrics.jsonl: a line is no JSON");
    if (step.at("step") == 1) results.steps.clear();
    results.steps.push_back(std::move(step));
  }
  return results;
}

struct BenchMemoryFlags {
  std::int64_t size_mib = 1024;
  int threads = 0;  // 0 = several counts in sequence
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

Json ToJson(const offload::MemorySpeed& speed) {
  return {{"threads", speed.threads}, {"gb_per_second", speed.bytes_per_second / 1e9}};
}

std::string ToLine(const offload::MemorySpeed& speed) {
  const double all = speed.bytes_per_second / 1e9;
  return fmt::format("{:>7}  {:>8.2f}  {:>13.2f}\n", speed.threads, all, all / speed.threads);
}

// `dsrun bench memory` measures reads and in-place writes of this host's memory by thread count.
// That is a bound for optimizer updates on the host.
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

}  // namespace

// `dsrun bench comm [--json]` measures communication between the ranks of a job. `bench io` has its
// own file.
StatusOr<int> BenchCommand(const Invocation& invocation) {
  const std::string what = invocation.arguments.empty() ? "" : invocation.arguments[0];
  if (what == "io") return BenchIoCommand(invocation);
  if (what == "memory") return BenchMemoryCommand(invocation);
  LaunchFlags launch = invocation.launch;
  BenchFlags flags;
  FlagParser parser("[launch flags] bench comm [flags]",
                    "Measure the collectives between the ranks of a job, as ds_bench does.");
  AddBenchFlags(parser.app(), &flags);
  AddLaunchFlags(&parser, &launch);
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::Rest::kRefused));
  if (parsed.help_shown) return kExitOk;
  DS_ASSIGN_OR_RETURN(config::CommBenchJob job, MakeJob(flags));
  DS_RETURN_IF_ERROR(CheckLaunchFlags(launch));

  launch.quiet = launch.quiet || flags.json;  // standard output is the JSON document
  DS_ASSIGN_OR_RETURN(JobRequest request,
                      GatherJobRequest("bench", launch, invocation.command_line));
  const JobPlan plan = PlanJob(std::move(request), {.built_in = true});
  if (plan.world.world_size() < 2) {
    return InvalidArgumentError(
        "bench: one rank has nobody to talk to; --num_gpus N or a hostfile gives more");
  }
  job.device = DeviceName(launch.device);
  Json description = DescribeJob("bench", plan);
  description["bench"] = Json::parse(config::ToJson(job));
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<RunDirectory> run_directory,
                      RunDirectory::Create(plan.run_directory));
  DS_RETURN_IF_ERROR(run_directory->WriteJob(description, Durability::kWhole));
  DS_ASSIGN_OR_RETURN(const int status,
                      RunJob(plan, SameProgram(MakeProgram(job)), run_directory.get()));
  if (status != kExitOk) return status;
  DS_ASSIGN_OR_RETURN(const BenchResults results, ReadResults(job, plan, *run_directory));
  const auto unit = flags.bw_unit == "Gbps" ? BandwidthUnit::kGigabits : BandwidthUnit::kGigabytes;
  std::cout << (flags.json ? ShowBenchJson(results) : ShowBenchTables(results, unit)) << std::flush;
  return kExitOk;
}

}  // namespace ds::cli
