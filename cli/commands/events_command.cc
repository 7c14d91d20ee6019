#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <array>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands/command_table.h"
#include "cli/commands/find_job.h"
#include "cli/flags/flag_parser.h"
#include "cli/front/log_reader.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/printable.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string ShowTime(std::int64_t unix_nanos) {
  const std::time_t seconds = unix_nanos / 1'000'000'000;
  std::tm local{};
  ::localtime_r(&seconds, &local);
  std::array<char, 32> time{};
  std::strftime(time.data(), time.size(), "%Y-%m-%d %H:%M:%S", &local);
  return fmt::format("{}.{:03}", time.data(), unix_nanos / 1'000'000 % 1000);
}

// Returns the fields that are neither part of every event nor shown by themselves.
std::string ShowRest(const Json& event) {
  std::string text;
  for (const auto& [name, value] : event.items()) {
    const bool is_shown = name == "unix_nanos" || name == "host" || name == "generation" ||
                          name == "sequence" || name == "event" || name == "rank";
    if (is_shown || value == false || value == 0) continue;
    text += "  " + name + "=" +
            (value.is_string() ? value.get<std::string>()
                               : value.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return text;
}

void PrintEvent(const std::string& line) {
  const Json event = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!event.is_object()) return;
  const std::string rank =
      event.contains("rank") ? "rank " + event["rank"].dump() : std::string("host");
  std::cout << fmt::format("{}  generation {}  {}  {}  {}{}\n",
                           ShowTime(event.value("unix_nanos", std::int64_t{0})),
                           event.value("generation", 0), Printable(event.value("host", "")), rank,
                           Printable(event.value("event", "")), Printable(ShowRest(event)));
}

}  // namespace

// `dsrun events [-f] [--json] [RUN]` prints the events of a job from its run folder.
StatusOr<int> EventsCommand(const Invocation& invocation) {
  std::string run;
  bool follow = false;
  bool as_json = false;
  FlagParser parser("events [-f] [--json] [RUN_DIR|JOB]",
                    "Print what happened to a job's ranks: starts, ends, reports and checkpoints. "
                    "Without RUN_DIR the only job that runs on this machine.");
  parser.app().add_option("RUN", run, "the run directory, or the job's name");
  parser.app().add_flag("-f,--follow", follow, "go on until the job has ended");
  parser.app().add_flag("--json", as_json, "print the lines of events.jsonl");
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
  if (parsed.help_shown) return kExitOk;
  DS_ASSIGN_OR_RETURN(const std::filesystem::path folder, FindJob(run, "events"));
  LogReader reader(folder / "events.jsonl", [as_json](const std::string& line) {
    if (as_json) {
      std::cout << line << "\n";
    } else {
      PrintEvent(line);
    }
  });
  const auto read = [&] {
    const Status status = reader.Read();
    std::cout << std::flush;
    return status;
  };
  DS_RETURN_IF_ERROR(follow ? FollowJob(folder, read) : read());
  return kExitOk;
}

}  // namespace ds::cli
