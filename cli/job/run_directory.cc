#include "cli/job/run_directory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "cli/flags/report_error.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/path_exists.h"
#include "runtime/base/shell_quote.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kIndent = 2;
constexpr unsigned kFileMode = 0644;
// What users typed is not for other users to read, however well the secrets in it are known.
constexpr unsigned kPrivateFileMode = 0600;

// Bytes that are no UTF-8 (a rank's last words) become U+FFFD.
std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string RankFileName(int rank, int stream) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "rank-%05d.%s", rank,
                stream == v1::RankOutput::STDERR ? "err" : "out");
  return name.data();
}

void AddExit(const v1::RankExited& exit, Json* json) {
  (*json)["rank"] = exit.rank();
  (*json)["pid"] = exit.pid();
  (*json)["exit_code"] = exit.exit_code();
  (*json)["signal"] = exit.signal();
  (*json)["core_dumped"] = exit.core_dumped();
  (*json)["max_rss_bytes"] = exit.max_rss_bytes();
  (*json)["stopping"] = exit.stopping();
  (*json)["oom_killed"] = exit.oom_killed();
  if (exit.output_cut()) (*json)["output_cut"] = true;
}

Json PhaseJson(const v1::RankPhase& phase) {
  Json json = {{"name", phase.name()}};
  if (phase.total_steps() > 0) json["total_steps"] = phase.total_steps();
  return json;
}

Json ErrorJson(const v1::RankError& error) {
  Json json = {{"code", error.code()},
               {"message", error.message()},
               {"hint", error.hint()},
               {"exit_code", error.exit_code()}};
  if (error.omitted() > 0) json["omitted"] = error.omitted();
  return json;
}

bool AddReport(const v1::RankReport& report, Json* json) {
  const auto add = [&](const char* kind, Json body) {
    (*json)["rank"] = report.rank();
    (*json)["kind"] = kind;
    (*json)["body"] = std::move(body);
    return true;
  };
  switch (report.what_case()) {
    case v1::RankReport::kHello:
      return add("hello", {{"pid", report.hello().pid()}});
    case v1::RankReport::kPhase:
      return add("phase", PhaseJson(report.phase()));
    case v1::RankReport::kNotice:
      return add("notice", {{"text", report.notice().text()}});
    case v1::RankReport::kCheckpoint:
      return add("checkpoint",
                 {{"step", report.checkpoint().step()}, {"path", report.checkpoint().path()}});
    case v1::RankReport::kError:
      return add("error", ErrorJson(report.error()));
    case v1::RankReport::kEnd:
      return add("end", {{"summary", {{"steps", report.end().steps()}}}});
    default:
      return false;
  }
}

// Returns the last bytes of a file; "" if there is none.
StatusOr<std::string> ReadEnd(const fs::path& path, std::uint64_t max_bytes) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid() && errno == ENOENT) return std::string();
  const off_t size = file.valid() ? ::lseek(file.get(), 0, SEEK_END) : -1;
  if (size < 0) return ErrnoError(errno, path.string());
  const off_t length = std::min(size, static_cast<off_t>(max_bytes));
  std::string end(static_cast<std::size_t>(length), '\0');
  ssize_t got = -1;
  do {
    got = ::pread(file.get(), end.data(), end.size(), size - length);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return ErrnoError(errno, path.string());
  end.resize(static_cast<std::size_t>(got));
  return end;
}

std::vector<std::string> TakeLastLines(std::string_view text, std::size_t max_lines) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  std::vector<std::string> lines;
  for (bool more = !text.empty(); more && lines.size() < max_lines;) {
    const std::size_t newline = text.rfind('\n');
    more = newline != std::string_view::npos;
    lines.emplace_back(text.substr(more ? newline + 1 : 0));
    text = text.substr(0, more ? newline : 0);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

Status CannotWrite(const fs::path& path, const Status& status) {
  return Status(status.code(), "run directory " + path.string() + ": " + status.message() +
                                   "; choose another with --run_dir");
}

// Rejects a folder with files of the names that a job writes, but without a job: another program
// has written them. An empty events.jsonl is left by a start that failed.
Status CheckHoldsNoRecord(const fs::path& path) {
  for (const char* name : {"events.jsonl", "metrics.jsonl", "verdict.json"}) {
    DS_ASSIGN_OR_RETURN(const bool exists, PathExists(path / name));
    std::error_code error;
    if (!exists || !fs::is_regular_file(path / name, error)) continue;
    const std::uintmax_t bytes = fs::file_size(path / name, error);
    if (error) return ErrnoError(error.value(), (path / name).string());
    if (bytes == 0) continue;
    return AlreadyExistsError("run directory " + path.string() + " has a file " + name +
                              " that is not of a job of dsrun; choose another with --run_dir");
  }
  return OkStatus();
}

// A quarter of what this process may have open: hosts and ranks here need theirs.
std::size_t CountMostOpenLogs() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return RunDirectory::kMostOpenLogs;
  return std::clamp<rlim_t>(limit.rlim_cur / 4, 1, RunDirectory::kMostOpenLogs);
}

}  // namespace

std::optional<Json> ToJson(const HostEvent& event) {
  Json json = {{"unix_nanos", event.event.unix_nanos()},
               {"host", event.host},
               {"generation", event.generation},
               {"sequence", event.event.sequence()}};
  switch (event.event.what_case()) {
    case v1::Event::kRankStarted:
      json["event"] = "rank_started";
      json["rank"] = event.event.rank_started().rank();
      json["pid"] = event.event.rank_started().pid();
      return json;
    case v1::Event::kStartFailed:
      json["event"] = "start_failed";
      json["rank"] = event.event.start_failed().rank();
      json["message"] = event.event.start_failed().message();
      return json;
    case v1::Event::kRankExited:
      json["event"] = "rank_exited";
      AddExit(event.event.rank_exited(), &json);
      return json;
    case v1::Event::kRankReport:
      json["event"] = "rank_report";
      if (!AddReport(event.event.rank_report(), &json)) return std::nullopt;
      return json;
    case v1::Event::kGenerationEnded:
      json["event"] = "host_ended";
      return json;
    default:
      return std::nullopt;
  }
}

RunDirectory::RunDirectory(fs::path path) : path_(std::move(path)) {
  disk_.Listen([](const std::string& text) { ReportNotices({text}); });
}

StatusOr<std::unique_ptr<RunDirectory>> RunDirectory::Create(const fs::path& path) {
  if (const Status made = MakeDirectories(path); !made.ok()) return CannotWrite(path, made);
  return Begin(path);
}

StatusOr<std::unique_ptr<RunDirectory>> RunDirectory::CreateNew(const fs::path& path) {
  if (const Status made = MakeDirectories(path.parent_path()); !made.ok()) {
    return CannotWrite(path, made);
  }
  if (const int made = FileSystem::System().MakeDirectory(path); made != 0) {
    return CannotWrite(path, ErrnoError(-made, path.string()));
  }
  return Begin(path);
}

StatusOr<std::unique_ptr<RunDirectory>> RunDirectory::Begin(const fs::path& path) {
  std::unique_ptr<RunDirectory> run(new RunDirectory(path));
  // Then nobody else begins a job there, and no other ends that has.
  DS_RETURN_IF_ERROR(run->Lock());
  DS_ASSIGN_OR_RETURN(const bool holds_job, PathExists(path / "job.json"));
  if (holds_job) {
    return AlreadyExistsError("run directory " + path.string() +
                              " already contains a job; choose another with --run_dir, or "
                              "resume it if it is a run of 'dsrun train': dsrun resume " +
                              ShellQuote(path.string()));
  }
  DS_RETURN_IF_ERROR(CheckHoldsNoRecord(path));
  DS_RETURN_IF_ERROR(run->OpenEvents());
  return run;
}

StatusOr<std::unique_ptr<RunDirectory>> RunDirectory::Open(const fs::path& path) {
  DS_ASSIGN_OR_RETURN(const bool holds_job, PathExists(path / "job.json"));
  if (!holds_job) {
    return NotFoundError(path.string() + " is no run directory: it has no job.json");
  }
  std::unique_ptr<RunDirectory> run(new RunDirectory(path));
  DS_RETURN_IF_ERROR(run->Lock());
  DS_RETURN_IF_ERROR(run->OpenEvents());
  return run;
}

Status RunDirectory::ContinueWriting(WriteLedger* ledger) {
  DS_RETURN_IF_ERROR(ledger->Undo());
  ledger_ = ledger;
  if (ledger->has_metrics()) OpenMetrics();
  return OpenEvents();
}

Status RunDirectory::OpenEvents() {
  const Status opened =
      events_.emplace(path_ / "events.jsonl", LogLimit(), ledger_).Append("").status;
  return opened.ok() ? OkStatus() : CannotWrite(path_, opened);
}

Status RunDirectory::Lock() {
  StatusOr<RunLock> lock = RunLock::Take(path_);
  if (lock.ok()) {
    lock_.emplace(*std::move(lock));
    return OkStatus();
  }
  if (lock.status().code() == StatusCode::kFailedPrecondition) {
    return FailedPreconditionError("run directory " + lock.status().message());
  }
  return CannotWrite(path_, lock.status());
}

StatusOr<int> RunDirectory::NextGeneration() const {
  const fs::path logs = path_ / "logs";
  DS_ASSIGN_OR_RETURN(const bool has_logs, PathExists(logs));
  int next = 0;
  std::error_code error;
  fs::directory_iterator entry;
  if (has_logs) entry = fs::directory_iterator(logs, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (const auto generation = ParseNumber<int>(name)) next = std::max(next, *generation + 1);
  }
  if (error) return ErrnoError(error.value(), logs.string());
  return next;
}

Status RunDirectory::WriteJob(const Json& job, Durability durability) {
  return WriteFileAtomically(path_ / "job.json", Dump(job, kIndent), kPrivateFileMode, durability);
}

StatusOr<Json> RunDirectory::ReadJob() const {
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path_ / "job.json"));
  Json job = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!job.is_object()) {
    return InvalidArgumentError((path_ / "job.json").string() +
                                " is damaged: it is no JSON object");
  }
  return job;
}

Status RunDirectory::WriteResolvedConfig(const Json& config) {
  return WriteFileAtomically(path_ / "config.resolved.json", Dump(config, kIndent));
}

StatusOr<RunDirectory::Settings> RunDirectory::ReadSettings() const {
  Settings settings;
  DS_ASSIGN_OR_RETURN(settings.job, ReadFile(path_ / "job.json"));
  DS_ASSIGN_OR_RETURN(settings.resolved_config, ReadFile(path_ / "config.resolved.json"));
  return settings;
}

Status RunDirectory::PutBack(const Settings& settings) {
  DS_RETURN_IF_ERROR(WriteFileAtomically(path_ / "config.resolved.json", settings.resolved_config));
  return WriteFileAtomically(path_ / "job.json", settings.job, kPrivateFileMode);
}

Status RunDirectory::WriteVerdict(const Verdict& verdict) {
  // Not durable: when the machine goes down the verdict is another one, and the user waits for
  // this.
  return WriteFileAtomically(path_ / "verdict.json", Dump(ToJson(verdict), kIndent), kFileMode,
                             Durability::kAtomic);
}

Status RunDirectory::RemoveVerdict() {
  std::error_code error;
  fs::remove(path_ / "verdict.json", error);
  return error ? ErrnoError(error.value(), (path_ / "verdict.json").string()) : OkStatus();
}

void RunDirectory::OpenMetrics() {
  metrics_.emplace(path_ / "metrics.jsonl", LogLimit(), ledger_);
  if (ledger_ != nullptr) ledger_->OnMetrics();
}

LogFile::Appended RunDirectory::MakeRankLogs(int generation, int rank) {
  LogFile::Appended made;
  for (const int stream : {v1::RankOutput::STDOUT, v1::RankOutput::STDERR}) {
    if (made.status.ok()) made = AppendToLog(generation, {rank, stream}, "");
  }
  return made;
}

Status RunDirectory::Append(const HostEvent& event) {
  return disk_.Repeat([&] { return AppendOnce(event); });
}

// Adds text to one file, all of it or nothing, so that the call may be repeated.
LogFile::Appended RunDirectory::AppendOnce(const HostEvent& event) {
  if (event.event.has_rank_output()) return AppendOutput(event);
  if (event.event.has_rank_started()) {
    const int rank = static_cast<int>(event.event.rank_started().rank());
    LogFile::Appended made = MakeRankLogs(event.generation, rank);
    if (!made.status.ok()) return made;
  }
  if (event.event.has_rank_report() && event.event.rank_report().has_step()) {
    return AppendMetrics(event.event.rank_report().step().json() + "\n");
  }
  const std::optional<Json> json = ToJson(event);
  return json.has_value() ? events_->Append(Dump(*json, -1)) : LogFile::Appended();
}

// Made with the first step: every file costs a start its share, and most programs report no steps.
LogFile::Appended RunDirectory::AppendMetrics(const std::string& line) {
  if (!metrics_.has_value()) OpenMetrics();
  return metrics_->Append(line);
}

LogFile::Appended RunDirectory::AppendOutput(const HostEvent& event) {
  const v1::RankOutput& output = event.event.rank_output();
  const LogKey key(static_cast<int>(output.rank()), output.stream());
  return AppendToLog(event.generation, key, output.data());
}

std::vector<std::string> RunDirectory::ReadLastLines(int generation, int rank) const {
  constexpr std::size_t kMostLines = 50;
  const fs::path folder = path_ / "logs" / std::to_string(generation);
  for (const int stream : {v1::RankOutput::STDERR, v1::RankOutput::STDOUT}) {
    const StatusOr<std::string> end = ReadLogEnd(folder / RankFileName(rank, stream));
    if (!end.ok()) return {"(its log cannot be read: " + end.status().message() + ")"};
    if (!end->empty()) return TakeLastLines(*end, kMostLines);
  }
  return {};
}

StatusOr<std::string> RunDirectory::ReadLogEnd(const fs::path& log) const {
  constexpr std::uint64_t kMostBytes = 64 * 1024;
  std::string end;
  for (int age = 0; age < log_limit_.max_files && end.size() < kMostBytes; ++age) {
    DS_ASSIGN_OR_RETURN(const std::string older,
                        ReadEnd(NameRotated(log, age), kMostBytes - end.size()));
    if (older.empty()) break;
    end.insert(0, older);
  }
  return end;
}

LogFile::Appended RunDirectory::AppendToLog(int generation, const LogKey& key,
                                            const std::string& text) {
  if (generation != log_generation_) {
    const Status made = MakeDirectories(path_ / "logs" / std::to_string(generation));
    if (!made.ok()) return {made, made.code() == StatusCode::kResourceExhausted};
    logs_.clear();
    most_open_logs_ = CountMostOpenLogs();
    log_generation_ = generation;
  }
  return FindLog(key)->Append(text);
}

LogFile* RunDirectory::FindLog(const LogKey& key) {
  const auto found = logs_.find(key);
  if (found != logs_.end()) {
    found->second.used = ++log_uses_;
    return &found->second.file;
  }
  if (logs_.size() >= most_open_logs_) {
    logs_.erase(std::min_element(logs_.begin(), logs_.end(), [](const auto& a, const auto& b) {
      return a.second.used < b.second.used;
    }));
  }
  LogFile file(
      path_ / "logs" / std::to_string(log_generation_) / RankFileName(key.first, key.second),
      log_limit_, ledger_);
  return &logs_.emplace(key, OpenedLog{std::move(file), ++log_uses_}).first->second.file;
}

}  // namespace ds::cli
