#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "cli/commands/command_table.h"
#include "cli/commands/find_job.h"
#include "cli/flags/flag_parser.h"
#include "cli/flags/log_filter.h"
#include "cli/front/log_reader.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/parse_number.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct LogsFlags {
  std::string run;
  std::string ranks;
  std::optional<int> generation;
  bool errors_only = false;
  bool follow = false;
  bool json = false;
};

struct RankLog {
  int generation = 0;
  int rank = 0;
  bool is_stderr = false;
  fs::path path;
};

// Parses "rank-00012.err".
std::optional<RankLog> ParseName(const fs::path& path) {
  const std::string stem = path.stem().string();
  const std::string kind = path.extension().string();
  constexpr std::string_view kPrefix = "rank-";
  if (!stem.starts_with(kPrefix) || (kind != ".out" && kind != ".err")) return std::nullopt;
  std::string digits = stem.substr(kPrefix.size());
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  const auto rank = ParseNumber<int>(digits);
  if (!rank.has_value()) return std::nullopt;
  return RankLog{.rank = *rank, .is_stderr = kind == ".err", .path = path};
}

// Returns the logs of all generations, or of one.
StatusOr<std::vector<RankLog>> ListLogs(const fs::path& run, std::optional<int> generation) {
  std::vector<RankLog> files;
  std::error_code error;
  const fs::path logs = run / "logs";
  if (!fs::exists(logs, error) && !error) return files;
  for (fs::directory_iterator folders(logs, error), end; !error && folders != end;
       folders.increment(error)) {
    const auto number = ParseNumber<int>(folders->path().filename().string());
    if (!number.has_value() || (generation.has_value() && *number != *generation)) continue;
    for (fs::directory_iterator entries(folders->path(), error); !error && entries != end;
         entries.increment(error)) {
      if (std::optional<RankLog> file = ParseName(entries->path())) {
        file->generation = *number;
        files.push_back(*std::move(file));
      }
    }
  }
  if (error) return ErrnoError(error.value(), logs.string());
  std::sort(files.begin(), files.end(), [](const RankLog& a, const RankLog& b) {
    return std::tie(a.generation, a.rank, a.is_stderr) <
           std::tie(b.generation, b.rank, b.is_stderr);
  });
  return files;
}

// Prints the selected logs, also those that appear while the job runs.
class LogPrinter {
 public:
  LogPrinter(fs::path run, const LogsFlags& flags, LogFilter shown)
      : run_(std::move(run)), flags_(flags), shown_(std::move(shown)) {}

  Status Read() {
    DS_ASSIGN_OR_RETURN(const std::vector<RankLog> files, ListLogs(run_, flags_.generation));
    for (const RankLog& file : files) {
      const bool known = std::any_of(readers_.begin(), readers_.end(), [&](const LogReader& each) {
        return each.path() == file.path;
      });
      if (known || !shown_.Shows(file.rank, file.is_stderr)) continue;
      readers_.emplace_back(file.path,
                            [this, file](const std::string& line) { Print(file, line); });
    }
    for (LogReader& reader : readers_) DS_RETURN_IF_ERROR(reader.Read());
    std::cout << std::flush;
    return OkStatus();
  }

  Status Finish() {
    for (LogReader& reader : readers_) DS_RETURN_IF_ERROR(reader.Finish());
    std::cout << std::flush;
    return OkStatus();
  }

 private:
  void Print(const RankLog& file, const std::string& line) const {
    if (flags_.json) {
      const Json json = {{"generation", file.generation},
                         {"rank", file.rank},
                         {"stream", file.is_stderr ? "stderr" : "stdout"},
                         {"text", line}};
      std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
    } else if (ParseNumber<int>(flags_.ranks).has_value()) {
      std::cout << line << "\n";  // of one rank
    } else {
      std::cout << file.rank << ": " << line << "\n";
    }
  }

  const fs::path run_;
  const LogsFlags& flags_;
  const LogFilter shown_;
  std::vector<LogReader> readers_;
};

void AddFlags(CLI::App& app, LogsFlags* flags) {
  app.add_option("RUN", flags->run, "the run directory, or the job's name");
  app.add_option(FlagNames("rank", "-r"), flags->ranks,
                 "only these ranks: 0, \"0,2-3\" (default: all, each line after its rank)")
      ->type_name("RANKS");
  app.add_option(FlagNames("generation"), flags->generation,
                 "only the logs of this generation; a restart begins another one")
      ->check(WholeNumber(0))
      ->type_name("N");
  app.add_flag(FlagNames("stderr"), flags->errors_only, "only standard error");
  app.add_flag("-f,--follow", flags->follow, "go on until the job has ended");
  app.add_flag("--json", flags->json, "print a JSON document for each line");
}

}  // namespace

// `dsrun logs [-f] [--rank N] [RUN]` prints the output of ranks from the run folder.
StatusOr<int> LogsCommand(const Invocation& invocation) {
  LogsFlags flags;
  FlagParser parser("logs [-f] [--rank RANKS] [--json] [RUN_DIR|JOB]",
                    "Print the output of a job's ranks, from the logs in its run directory. "
                    "Without RUN_DIR the only job that runs on this machine.");
  AddFlags(parser.app(), &flags);
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
  if (parsed.help_shown) return kExitOk;
  DS_ASSIGN_OR_RETURN(const LogFilter shown, LogFilter::Parse(flags.ranks, flags.errors_only));
  DS_ASSIGN_OR_RETURN(const fs::path folder, FindJob(flags.run, "logs"));
  LogPrinter printer(folder, flags, shown);
  if (flags.follow) {
    DS_RETURN_IF_ERROR(FollowJob(folder, [&] { return printer.Read(); }));
  } else {
    DS_RETURN_IF_ERROR(printer.Read());
  }
  DS_RETURN_IF_ERROR(printer.Finish());
  return kExitOk;
}

}  // namespace ds::cli
