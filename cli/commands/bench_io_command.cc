#include "cli/commands/bench_parts.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "cli/flags/flag_parser.h"
#include "runtime/base/exit_codes.h"
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
  app.add_option("WHAT", "io: the drives of offload")->required();
  app.add_option("PATH", flags->path, "a folder of the drive, or several separated by commas")
      ->required();
  app.add_option("--size", flags->size_mib, "MiB to write and read (default: 1024)")
      ->check(WholeNumber(1, 1 << 20))
      ->type_name("MIB");
  app.add_option(FlagNames("block_size"), flags->io.block_bytes,
                 "bytes of a request (default: 1048576)")
      ->check(WholeNumber(4096, 1 << 30))
      ->type_name("BYTES");
  app.add_option(FlagNames("queue_depth"), flags->io.queue_depth,
                 "requests of a thread under way (default: 8)")
      ->check(WholeNumber(1, 4096))
      ->type_name("N");
  app.add_option(FlagNames("intra_op_parallelism"), flags->io.threads, "threads (default: 1)")
      ->check(WholeNumber(1, 256))
      ->type_name("N");
  app.add_flag(FlagNames("single_submit"), flags->io.single_submit,
               "a system call for each request");
  app.add_flag(FlagNames("sequential_requests"), flags->sequential_submission,
               "no request before all earlier ones have ended (overlap_events false)");
  app.add_flag(FlagNames("no_io_uring"), flags->no_ring, "threads, though io_uring may be used");
  app.add_flag("--sweep", flags->sweep, "try many settings and name the fastest");
  app.add_flag("--json", flags->json, "print one JSON document in place of the table");
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

}  // namespace

StatusOr<int> BenchIoCommand(const Invocation& invocation) {
  BenchIoFlags flags;
  FlagParser parser("bench io PATH [flags]",
                    "Measure how fast this host's drives are written and read by offload to NVMe, "
                    "as ds_io and ds_nvme_tune do.");
  AddBenchIoFlags(parser.app(), &flags);
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::Rest::kRefused));
  if (parsed.help_shown) return kExitOk;
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

}  // namespace ds::cli
