#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <array>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "cli/commands/bench_tables.h"
#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"
#include "cli/flags/launch_flags.h"
#include "cli/front/run_job.h"
#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/job/run_directory.h"
#include "proto/job_directory.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/suggest.h"
#include "runtime/offload/bandwidth.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;
using offload::FolderFacts;
using offload::IoOptions;
using offload::TierSpeed;

struct BenchIoFlags {
  std::string path;
  std::int64_t size_mib = 1024;
  IoOptions io;
  bool sequential_submission = false;
  bool no_ring = false;
  bool sweep = false;
  bool json = false;
};

void AddBenchIoFlags(CLI::App& app, BenchIoFlags* flags) {
  app.add_option("WHAT", "io: the drives of offload");
  app.add_option("PATH", flags->path, "a folder of the drive, or several separated by commas");
  app.add_option("--size", flags->size_mib, "MiB to write and read (default: 1024)")
      ->check(WholeNumber(1, 1 << 20))
      ->type_name("MIB");
  app.add_option(FlagNames("block_size"), flags->io.block_bytes,
                 "bytes per request (default: 1048576)")
      ->check(WholeNumber(4096, 1 << 30))
      ->type_name("BYTES");
  app.add_option(FlagNames("queue_depth"), flags->io.queue_depth,
                 "requests in flight per thread (default: 8)")
      ->check(WholeNumber(1, 4096))
      ->type_name("N");
  app.add_option(FlagNames("intra_op_parallelism"), flags->io.threads, "threads (default: 1)")
      ->check(WholeNumber(1, 256))
      ->type_name("N");
  app.add_flag(FlagNames("single_submit"), flags->io.single_submit, "one system call per request");
  app.add_flag(FlagNames("sequential_requests"), flags->sequential_submission,
               "wait for all earlier requests before the next (overlap_events false)");
  app.add_flag(FlagNames("no_io_uring"), flags->no_ring,
               "use threads even if io_uring is available");
  app.add_flag("--sweep", flags->sweep, "try many settings and name the fastest");
  app.add_flag("--json", flags->json, "print one JSON document instead of the table");
}

std::vector<std::filesystem::path> ListFolders(const std::string& path) {
  std::vector<std::filesystem::path> folders;
  std::istringstream text(path);
  for (std::string folder; std::getline(text, folder, ',');) folders.emplace_back(folder);
  return folders;
}

// Returns the settings as a section of a ds_config.
Json ToAioSection(const IoOptions& io) {
  return {{"block_size", io.block_bytes},
          {"queue_depth", io.queue_depth},
          {"intra_op_parallelism", io.threads},
          {"single_submit", io.single_submit},
          {"overlap_events", io.overlap_events}};
}

Json ToJson(const TierSpeed& speed) {
  Json result = ToAioSection(speed.io);
  result["write_gb_per_second"] = speed.write_bytes_per_second / 1e9;
  result["read_gb_per_second"] = speed.read_bytes_per_second / 1e9;
  return result;
}

Json ToJson(const FolderFacts& facts) {
  return {{"folder", facts.folder.string()}, {"file_system", facts.file_system},
          {"direct", facts.direct},          {"in_memory", facts.in_memory},
          {"alignment", facts.alignment},    {"free_bytes", offload::FreeBytes(facts.folder)}};
}

constexpr std::string_view kHeading =
    "block_size  queue_depth  threads  single  overlap   write GB/s    read GB/s\n";

std::string ToLine(const TierSpeed& speed) {
  return fmt::format("{:>10}  {:>11}  {:>7}  {:>6}  {:>7}  {:>11.2f}  {:>11.2f}\n",
                     speed.io.block_bytes, speed.io.queue_depth, speed.io.threads,
                     speed.io.single_submit, speed.io.overlap_events,
                     speed.write_bytes_per_second / 1e9, speed.read_bytes_per_second / 1e9);
}

std::string DescribeFolders(const offload::FileTier& tier) {
  std::string text;
  for (const offload::ScratchFile& file : tier.files()) {
    const FolderFacts& facts = file.facts();
    text += fmt::format("{}: {}, {}{}\n", facts.folder.string(), facts.file_system,
                        facts.direct ? "past the page cache" : "through the page cache",
                        facts.in_memory ? ", in memory" : "");
  }
  text += fmt::format("requests by {}{}\n", tier.queue().name(),
                      tier.why_not_ring().empty() ? "" : ": " + tier.why_not_ring());
  return text;
}

struct Measured {
  Json folders = Json::array();
  std::string queue;
  std::vector<TierSpeed> speeds;
};

StatusOr<Measured> Measure(const BenchIoFlags& flags) {
  offload::TierOptions options{
      .folders = ListFolders(flags.path),
      .io = flags.io,
      .queue = flags.no_ring ? offload::QueueChoice::kThreads : offload::QueueChoice::kAuto};
  options.io.overlap_events = !flags.sequential_submission;
  Measured measured;
  {
    DS_ASSIGN_OR_RETURN(const auto tier, offload::FileTier::Open(options));
    for (const auto& file : tier->files()) measured.folders.push_back(ToJson(file.facts()));
    measured.queue = tier->queue().name();
    if (!flags.json) std::cout << DescribeFolders(*tier) << "\n" << kHeading << std::flush;
  }
  const std::vector<IoOptions> settings =
      flags.sweep ? offload::ListIoSettings() : std::vector<IoOptions>{options.io};
  for (const IoOptions& io : settings) {
    options.io = io;
    DS_ASSIGN_OR_RETURN(const TierSpeed speed, MeasureTier(options, flags.size_mib << 20));
    measured.speeds.push_back(speed);
    if (!flags.json) std::cout << ToLine(speed) << std::flush;
  }
  return measured;
}

// `dsrun bench io PATH` measures offload throughput of this host's drives, like ds_io and
// ds_nvme_tune. The first argument must be "io".
StatusOr<int> BenchIoCommand(const Invocation& invocation) {
  BenchIoFlags flags;
  FlagParser parser(
      "bench io PATH [flags]",
      "Measure the speed of offload to this host's drives, as ds_io and ds_nvme_tune do.");
  AddBenchIoFlags(parser.app(), &flags);
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
  if (parsed.help_shown) return kExitOk;
  if (flags.path.empty()) {
    return InvalidArgumentError("bench io: no PATH given; see dsrun bench io --help");
  }
  if (flags.io.block_bytes % 4096 != 0) {
    return InvalidArgumentError("bench io: --block_size must be a multiple of 4096");
  }
  const StatusOr<Measured> measured = Measure(flags);
  if (!measured.ok()) return measured.status().WithContext("bench io");
  const TierSpeed& best = ChooseFastest(measured->speeds);
  const Json section = {{"aio", ToAioSection(best.io)}};
  if (flags.json) {
    Json results = Json::array();
    for (const TierSpeed& speed : measured->speeds) results.push_back(ToJson(speed));
    std::cout << Json({{"folders", measured->folders},
                       {"requests_by", measured->queue},
                       {"size_bytes", flags.size_mib << 20},
                       {"results", results},
                       {"fastest", ToJson(best)},
                       {"aio", section["aio"]}})
                     .dump()
              << std::endl;
  } else if (flags.sweep) {
    std::cout << "\nfor the ds_config:\n" << section.dump(2) << std::endl;
  }
  return kExitOk;
}

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
  BeginFlagGroup(app, "Collectives");
  for (std::size_t i = 0; i < flags->chosen.size(); ++i) {
    const std::string name(config::kBenchCollectives[i]);
    const std::string help = name == "pt2pt" ? "measure messages from rank 0 to the last"
                                             : "measure this collective (default: all)";
    app.add_flag(FlagNames(name), flags->chosen[i], help);
  }
  BeginFlagGroup(app, "Measurement");
  app.add_option(FlagNames("min_size"), flags->min_size,
                 "first size of one rank's input in bytes, with suffix K, M or G (default: 1K)")
      ->type_name("SIZE");
  app.add_option(FlagNames("max_size"), flags->max_size,
                 "last size; each size is twice the one before (default: 64M)")
      ->type_name("SIZE");
  app.add_option(FlagNames("trials"), flags->job.trials, "timed calls per size (default: 50)")
      ->check(WholeNumber(1))
      ->type_name("N");
  app.add_option(FlagNames("warmups"), flags->job.warmups, "untimed calls per size (default: 5)")
      ->check(WholeNumber(0))
      ->type_name("N");
  TakeOneOf(app.add_option(FlagNames("dtype"), flags->job.dtype,
                           "data type of the elements (default: float32)"),
            {"float32", "float16", "bfloat16"});
  TakeOneOf(
      app.add_option(FlagNames("bw_unit"), flags->bw_unit, "unit of the tables (default: Gbps)"),
      {"Gbps", "GBps"});
  app.add_flag(FlagNames("encrypt"), flags->job.encrypt,
               "encrypt the traffic between CPU ranks of several hosts (TLS 1.3)");
  app.add_flag("--json", flags->json, "print one JSON document instead of the tables");
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
        "bench: name a measurement: bench comm, bench io PATH or bench memory");
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
  app.add_option("WHAT", "memory: reading and writing it in place");
  app.add_option("--size", flags->size_mib,
                 "MiB that all threads process, many times the size of the caches (default: 1024)")
      ->check(WholeNumber(1, 1 << 20))
      ->type_name("MIB");
  app.add_option(FlagNames("threads"), flags->threads,
                 "only this number of threads (default: 1, 2, 4 ... up to the available cores)")
      ->check(WholeNumber(1, 4096))
      ->type_name("N");
  app.add_flag("--json", flags->json, "print one JSON document instead of the table");
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
                    "Measure the speed of reading and writing this host's memory in place, which "
                    "bounds the updates of optimizers on the host.");
  AddBenchMemoryFlags(parser.app(), &flags);
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
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

namespace {

Status CheckStays(const LaunchFlags& launch) {
  if (!launch.detach) return CheckEngine(launch, {"bench"});
  return InvalidArgumentError("bench: --detach is not valid, because dsrun prints the results");
}

}  // namespace

// `dsrun bench comm [--json]` measures communication between the ranks of a job.
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
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
  if (parsed.help_shown) return kExitOk;
  DS_ASSIGN_OR_RETURN(config::CommBenchJob job, MakeJob(flags));
  DS_RETURN_IF_ERROR(CheckLaunchFlags(launch));
  DS_RETURN_IF_ERROR(CheckStays(launch));

  launch.quiet = launch.quiet || flags.json;  // standard output is the JSON document
  DS_ASSIGN_OR_RETURN(JobRequest request,
                      GatherJobRequest("bench", launch, invocation.command_line));
  JobPlan plan = PlanJob(std::move(request), {.built_in = true});
  if (plan.world.world_size() < 2) {
    return InvalidArgumentError(
        "bench: comm needs at least two ranks; give --num_gpus N or a hostfile");
  }
  job.device = DeviceName(launch.device);
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<RunDirectory> run_directory,
                      CreateRunDirectory(launch, &plan.job_id, &plan.run_directory));
  Json description = DescribeJob("bench", plan);
  description["bench"] = Json::parse(config::ToJson(job));
  DS_RETURN_IF_ERROR(run_directory->WriteJob(description, Durability::kAtomic));
  DS_ASSIGN_OR_RETURN(const int status,
                      RunJob(plan, SameProgram(MakeProgram(job)), run_directory.get()));
  if (status != kExitOk) return status;
  DS_ASSIGN_OR_RETURN(const BenchResults results, ReadResults(job, plan, *run_directory));
  const auto unit = flags.bw_unit == "Gbps" ? BandwidthUnit::kGigabits : BandwidthUnit::kGigabytes;
  std::cout << (flags.json ? ShowBenchJson(results) : ShowBenchTables(results, unit)) << std::flush;
  return kExitOk;
}

}  // namespace ds::cli
