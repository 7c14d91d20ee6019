#include "cli/launch/environment.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <optional>
#include <utility>

#include "cli/launch/blanks.h"
#include "cli/launch/secrets.h"
#include "runtime/base/files.h"
#include "runtime/base/path_exists.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

void Set(std::string name, std::string value, Environment* environment) {
  for (auto& [each, old] : *environment) {
    if (each == name) {
      old = std::move(value);
      return;
    }
  }
  environment->emplace_back(std::move(name), std::move(value));
}

// Joins `names`, each between `before` and `after`.
std::string List(const std::vector<std::string>& names, const std::string& separator,
                 const std::string& before = "", const std::string& after = "") {
  std::string list;
  for (const std::string& name : names) {
    list += (list.empty() ? "" : separator) + before + name + after;
  }
  return list;
}

}  // namespace

Environment ReadShellEnvironment() {
  Environment shell;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    shell.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return shell;
}

const std::string* FindVariable(const Environment& environment, std::string_view name) {
  for (const auto& [each, value] : environment) {
    if (each == name) return &value;
  }
  return nullptr;
}

const std::string* FindRankVariable(const Environment& exports, const Environment& shell,
                                    std::string_view name) {
  const std::string* const exported = FindVariable(exports, name);
  return exported != nullptr ? exported : FindVariable(shell, name);
}

Environment Overlay(Environment base, const Environment& over) {
  for (const auto& [name, value] : over) Set(name, value, &base);
  return base;
}

namespace {

constexpr std::uint64_t kMaxEnvFileBytes = std::uint64_t{16} << 20;
constexpr std::string_view kExport = "export";

// Returns the character for \c in double quotes. A backslash before any other character is kept.
std::string Unescaped(char c) {
  switch (c) {
    case 'n':
      return "\n";
    case 't':
      return "\t";
    case '"':
    case '\\':
    case '$':
      return {c};
    default:
      return {'\\', c};
  }
}

// Parses a value in quotes; `text` begins with one. Only a comment may follow the closing quote.
StatusOr<std::string> QuotedValue(std::string_view text) {
  const char quote = text.front();
  std::string value;
  std::size_t at = 1;
  for (; at < text.size() && text[at] != quote; ++at) {
    if (quote == '"' && text[at] == '\\' && at + 1 < text.size()) {
      value += Unescaped(text[++at]);
    } else {
      value += text[at];
    }
  }
  if (at == text.size()) {
    return InvalidArgumentError(std::string("the value's ") + quote + " is not closed");
  }
  const std::string_view rest = text.substr(at + 1);
  const std::string_view after = Strip(rest);
  if (!after.empty() && (after.front() != '#' || after.size() == rest.size())) {
    return InvalidArgumentError(std::string("text after the closing ") + quote +
                                "; quote the whole value");
  }
  return value;
}

std::string PlainValue(std::string_view text) {
  for (std::size_t at = 1; at < text.size(); ++at) {
    if (text[at] == '#' && IsBlank(text[at - 1])) text = text.substr(0, at);
  }
  return std::string(Strip(text));
}

Status CheckName(std::string_view name) {
  if (name.empty()) return InvalidArgumentError("no name before '='");
  const bool odd = std::any_of(name.begin(), name.end(), [](char c) {
    return IsBlank(c) || c == '"' || c == '\'' || c == '$' || static_cast<unsigned char>(c) < 0x20;
  });
  if (odd) return InvalidArgumentError("the name before '=' has a blank or a quote");
  return OkStatus();
}

// After `export`, a shell ends the value at the blank and exports the next word, too. DeepSpeed
// takes the full line and passes `export` to the remote shell.
Status RefuseWords() {
  return InvalidArgumentError(
      "a blank in the value after `export`, where a shell ends it: quote the whole value, or write "
      "one variable per line");
}

// A stripped line that is neither empty nor a comment.
StatusOr<std::pair<std::string, std::string>> ParseVariable(std::string_view line) {
  if (line.find('\0') != std::string_view::npos) return InvalidArgumentError("holds a NUL byte");
  const bool exports =
      line.starts_with(kExport) && line.size() > kExport.size() && IsBlank(line[kExport.size()]);
  if (exports) {
    line = StripFront(line.substr(kExport.size()));
  }
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos) {
    return InvalidArgumentError("expected NAME=VALUE, found no '='");
  }
  const std::string_view name = Strip(line.substr(0, equals));
  DS_RETURN_IF_ERROR(CheckName(name));
  const std::string_view text = StripFront(line.substr(equals + 1));
  if (text.empty() || (text.front() != '"' && text.front() != '\'')) {
    std::string value = PlainValue(line.substr(equals + 1));
    if (exports && std::any_of(value.begin(), value.end(), IsBlank)) return RefuseWords();
    return std::pair(std::string(name), std::move(value));
  }
  DS_ASSIGN_OR_RETURN(std::string value, QuotedValue(text));
  return std::pair(std::string(name), std::move(value));
}

}  // namespace

StatusOr<Environment> ParseEnvFile(std::string_view text, std::string_view file_name) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  Environment environment;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = Strip(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    auto variable = ParseVariable(line);
    if (!variable.ok()) {
      return variable.status().WithContext(std::string(file_name) + ":" + std::to_string(number));
    }
    auto& [name, value] = *variable;
    Set(std::move(name), std::move(value), &environment);
  }
  return environment;
}

StatusOr<Environment> ReadEnvFile(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return ErrnoError(EISDIR, "env file " + path.string());
  const StatusOr<std::string> text = ReadFile(path, kMaxEnvFileBytes);
  if (!text.ok()) return text.status().WithContext("env file");
  return ParseEnvFile(*text, path.string());
}

StatusOr<std::vector<fs::path>> FindUsualEnvFiles(const std::optional<std::string>& name,
                                                  const fs::path& home,
                                                  const fs::path& working_directory) {
  const fs::path file = name.value_or(".deepspeed_env");
  std::vector<fs::path> found;
  for (const fs::path& folder : {home, working_directory}) {
    const fs::path path = folder / file;
    if (folder.empty() || file.empty()) continue;
    const StatusOr<bool> exists = PathExists(path);
    // HOME may be another user's (sudo -u), who lets nobody in.
    if (exists.status().code() == StatusCode::kPermissionDenied) continue;
    if (!exists.ok()) return exists.status().WithContext("env file");
    std::error_code error;
    if (!*exists || !fs::is_regular_file(path, error)) continue;
    if (found.empty() || !fs::equivalent(found.back(), path, error)) found.push_back(path);
  }
  return found;
}

namespace {

constexpr std::array<std::string_view, 26> kRemotePrefixes = {
    "NCCL", "PYTHON", "MLFLOW", "MV2", "UCX", "DSRUN_INTERFACE", "DSRUN_COLLECTIVE_TIMEOUT",
    "DEEPSPEED_TIMEOUT",
    // The Nebula service and its Azure hosts.
    "DLTS_JOB_ID", "DLTS_NUM_WORKER", "NEBULA_PERSISTENT_STORAGE_PATH",
    "NEBULA_PERSISTENT_TIME_INTERVAL", "AML_RUN_ID", "AZUREML_RUN_TOKEN", "AZUREML_WORKSPACE_SCOPE",
    "AZUREML_EXPERIMENT_SCOPE", "AZUREML_RUN_HISTORY_SERVICE_ENDPOINT", "AZUREML_RUN_ID",
    "NEBULA_MEMORY_BUFFER_SIZE", "AZUREML_PARAMETER_ITPJOB_NAME", "FC_TASKROLE_NAME",
    "FC_TASK_INDEX", "MASTER_HOST", "LOCAL_HOST", "AZUREML_BLOB_ACCOUNT_NAME",
    "AZUREML_BLOB_ACCOUNT_KEY"};

bool IsPattern(const std::string& word) { return word.find_first_of("*?[") != std::string::npos; }

Status AddWord(const std::string& word, const Environment& shell, Environment* exports) {
  const std::size_t equals = word.find('=');
  if (word.empty() || equals == 0) {
    return InvalidArgumentError("-x " + word + ": expected NAME=VALUE, NAME or a pattern");
  }
  if (equals != std::string::npos) {
    Set(word.substr(0, equals), word.substr(equals + 1), exports);
    return OkStatus();
  }
  if (IsPattern(word)) {
    for (const auto& [name, value] : shell) {
      if (::fnmatch(word.c_str(), name.c_str(), 0) == 0) Set(name, value, exports);
    }
    return OkStatus();
  }
  const std::string* value = FindVariable(shell, word);
  if (value == nullptr) {
    return InvalidArgumentError(
        "-x " + word + ": " + word +
        " is not set in this shell; export it first or give its value: -x " + word + "=...");
  }
  Set(word, *value, exports);
  return OkStatus();
}

bool IsRemotePrefix(const std::string& name) {
  return std::any_of(kRemotePrefixes.begin(), kRemotePrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::optional<std::string> Value(const Environment& environment, std::string_view name) {
  const std::string* found = FindVariable(environment, name);
  return found == nullptr ? std::nullopt : std::optional<std::string>(*found);
}

// Rejects KMP_AFFINITY. With it Intel's OpenMP would move the threads of a bound rank to other
// cores.
Status CheckCoreBinding(const Environment& exports, const Environment& shell) {
  if (FindRankVariable(exports, shell, "KMP_AFFINITY") == nullptr) return OkStatus();
  return InvalidArgumentError(
      "--bind_cores_to_rank contradicts KMP_AFFINITY in the environment; unset one of them");
}

// Joins the first names with commas and counts the others.
std::string JoinNames(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > kMost) text += " and " + std::to_string(names.size() - kMost) + " more";
  return text;
}

// True if the value contains $NAME or ${NAME}.
bool HasReference(std::string_view value) {
  for (std::size_t i = 0; i + 1 < value.size(); ++i) {
    const char next = value[i + 1];
    const bool starts_name =
        next == '{' || next == '_' || std::isalpha(static_cast<unsigned char>(next)) != 0;
    if (value[i] == '$' && starts_name) return true;
  }
  return false;
}

// Adds notices for variables of a file that ranks do not get as its author may expect.
void DescribeFile(const std::string& path, const Environment& file,
                  std::vector<std::string>* notices) {
  std::vector<std::string> literal, own;
  for (const auto& [name, value] : file) {
    if (IsOwnVariable(name)) {
      own.push_back(name);
    } else if (HasReference(value)) {
      literal.push_back(name);
    }
  }
  if (!literal.empty()) {
    notices->push_back(path + ": the $ in " + JoinNames(literal) +
                       " stays as it is written: env files expand nothing");
  }
  if (!own.empty()) {
    notices->push_back(path + ": " + JoinNames(own) + (own.size() == 1 ? " has" : " have") +
                       " no effect: dsrun sets " + (own.size() == 1 ? "it" : "them") +
                       " for each rank");
  }
}

// Returns the last source that sets PATH: an env file, in their order, or -x.
std::string FindPathSource(const std::vector<std::pair<std::string, const Environment*>>& files,
                           const std::vector<std::string>& words) {
  std::string source;
  for (const auto& [path, file] : files) {
    if (FindVariable(*file, "PATH") != nullptr) source = path;
  }
  for (const std::string& word : words) {
    if (word.substr(0, word.find('=')) == "PATH") source = "-x PATH";
  }
  return source;
}

}  // namespace

StatusOr<Environment> ResolveExports(const ExportRequest& request, const Environment& shell) {
  Environment exports;
  for (const Environment& file : request.files) exports = Overlay(std::move(exports), file);
  for (const std::string& word : request.words) {
    DS_RETURN_IF_ERROR(AddWord(word, shell, &exports));
  }
  return exports;
}

Environment PickRemoteExports(const Environment& shell, std::string_view working_directory) {
  const bool keep_network_devices = FindVariable(shell, "AISC_JOB_NAME") != nullptr;
  Environment exports;
  for (const auto& [name, value] : shell) {
    if (!IsRemotePrefix(name)) continue;
    if (keep_network_devices && (name == "NCCL_IB_HCA" || name == "UCX_NET_DEVICES")) continue;
    Set(name, value, &exports);
  }
  const std::string* path = FindVariable(shell, "PYTHONPATH");
  std::string python_path(working_directory);
  if (path != nullptr && !path->empty()) python_path += ":" + *path;
  Set("PYTHONPATH", std::move(python_path), &exports);
  return exports;
}

StatusOr<GatheredExports> GatherExports(const LaunchFlags& flags, const Environment& shell,
                                        const std::filesystem::path& working_directory) {
  GatheredExports gathered;
  ExportRequest request{.words = flags.exports};
  std::vector<std::string> names;
  DS_ASSIGN_OR_RETURN(const std::vector<std::filesystem::path> usual,
                      FindUsualEnvFiles(Value(shell, "DS_ENV_FILE"),
                                        Value(shell, "HOME").value_or(""), working_directory));
  for (const std::filesystem::path& path : usual) {
    DS_ASSIGN_OR_RETURN(Environment file, ReadEnvFile(path));
    gathered.notices.push_back("ranks get the variables of " + path.string());
    request.files.push_back(std::move(file));
    names.push_back(path.string());
  }
  for (const std::string& path : flags.env_files) {
    DS_ASSIGN_OR_RETURN(Environment file, ReadEnvFile(path));
    request.files.push_back(std::move(file));
    names.push_back(path);
  }
  std::vector<std::pair<std::string, const Environment*>> files;
  for (std::size_t i = 0; i < names.size(); ++i) {
    DescribeFile(names[i], request.files[i], &gathered.notices);
    files.emplace_back(names[i], &request.files[i]);
  }
  gathered.path_source = FindPathSource(files, request.words);
  DS_ASSIGN_OR_RETURN(gathered.environment, ResolveExports(request, shell));
  if (flags.bind_cores_to_rank) DS_RETURN_IF_ERROR(CheckCoreBinding(gathered.environment, shell));
  return gathered;
}

namespace {

std::string NameOf(const std::string& word) { return word.substr(0, word.find('=')); }

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Status ValuesAreLost(const std::vector<std::string>& names) {
  return InvalidArgumentError("the job was given " + List(names, ", ") +
                              " by -x NAME=VALUE, and "
                              "its job.json keeps no values: give " +
                              List(names, " ", "-x ", "=...") + " again, or " +
                              List(names, " ", "-x ") + " for this shell's");
}

Status NobodyHas(const std::vector<std::string>& names) {
  return InvalidArgumentError(
      "the job takes " + List(names, ", ") +
      " from the shell by -x, and this shell does not have it: export it here, or give " +
      List(names, " ", "-x ", "=..."));
}

}  // namespace

StoredExports StoreExports(const std::vector<std::string>& words) {
  StoredExports stored{.words = {}, .had_values = std::vector<std::string>()};
  for (const std::string& word : words) {
    stored.words.push_back(NameOf(word));
    if (stored.words.back().size() < word.size()) stored.had_values->push_back(NameOf(word));
  }
  return stored;
}

StatusOr<RenewedExports> RenewExports(const StoredExports& stored,
                                      const std::vector<std::string>& given,
                                      const Environment& shell) {
  RenewedExports exports;
  std::vector<std::string> lost;
  std::vector<std::string> missing;
  for (const std::string& word : stored.words) {
    const std::string name = NameOf(word);
    const bool anew = std::any_of(given.begin(), given.end(), [&](const std::string& renewed) {
      return NameOf(renewed) == name;
    });
    if (anew) continue;
    const bool had_value = stored.had_values.has_value()
                               ? Contains(*stored.had_values, name)
                               : word.ends_with("=" + std::string(kRedacted));
    if (had_value) {
      lost.push_back(name);
      continue;
    }
    exports.words.push_back(word);
    if (word.find_first_of("=*?[") != std::string::npos) continue;
    (FindVariable(shell, word) == nullptr ? missing : exports.from_shell).push_back(word);
  }
  if (!lost.empty()) return ValuesAreLost(lost);
  if (!missing.empty()) return NobodyHas(missing);
  exports.may_have_had_values = !stored.had_values.has_value() && !exports.from_shell.empty();
  return exports;
}

namespace {

void AddIdentity(const WorldPlan& plan, const PlannedRank& rank, Environment* environment) {
  const std::string local_size = std::to_string(plan.host_of(rank).rank_count());
  const std::string node_rank = std::to_string(rank.node_rank);
  environment->insert(environment->end(),
                      {{"RANK", std::to_string(rank.rank)},
                       {"LOCAL_RANK", std::to_string(rank.local_rank)},
                       {"WORLD_SIZE", std::to_string(plan.world_size())},
                       {"LOCAL_WORLD_SIZE", local_size},
                       {"LOCAL_SIZE", local_size},
                       {"GROUP_RANK", node_rank},
                       {"NODE_RANK", node_rank},
                       {"CROSS_RANK", node_rank},
                       {"CROSS_SIZE", std::to_string(plan.hosts.size())},
                       {"GROUP_WORLD_SIZE", std::to_string(plan.hosts.size())}});
}

// Adds torchrun's variables, so that torch.distributed.is_torchelastic_launched() returns true. All
// ranks have one role. Rank 0 serves the store, not an agent. With another setting ranks would wait
// for a server that nothing starts.
void AddTorchElastic(const WorldPlan& plan, const PlannedRank& rank, const JobEnvironment& job,
                     Environment* environment) {
  const std::string& run_id = job.run_id.empty() ? job.job_id : job.run_id;
  environment->insert(environment->end(),
                      {{"ROLE_NAME", job.role},
                       {"ROLE_RANK", std::to_string(rank.rank)},
                       {"ROLE_WORLD_SIZE", std::to_string(plan.world_size())},
                       {"TORCHELASTIC_RESTART_COUNT", std::to_string(job.generation)},
                       {"TORCHELASTIC_MAX_RESTARTS", std::to_string(job.max_restarts)},
                       {"TORCHELASTIC_USE_AGENT_STORE", "False"}});
  if (!run_id.empty()) environment->emplace_back("TORCHELASTIC_RUN_ID", run_id);
}

}  // namespace

JobEnvironment MakeJobEnvironment(const LaunchFlags& flags) {
  return {.max_restarts = flags.max_restarts,
          .run_id = flags.run_id,
          .role = flags.role,
          .interface = flags.interface,
          .lease_seconds = flags.lease_seconds,
          .collective_timeout = flags.collective_timeout,
          .one_device_per_rank = flags.one_device_per_rank};
}

Environment MakeRankEnvironment(const WorldPlan& plan, const PlannedRank& rank,
                                const JobEnvironment& job) {
  Environment environment;
  AddIdentity(plan, rank, &environment);
  environment.emplace_back("MASTER_ADDR", job.master_addr);
  if (job.master_port > 0) environment.emplace_back("MASTER_PORT", std::to_string(job.master_port));
  if (!job.interface.empty()) environment.emplace_back("DSRUN_INTERFACE", job.interface);
  if (plan.hosts.size() > 1 && job.lease_seconds > 0) {
    environment.emplace_back("DSRUN_LEASE_SECONDS", fmt::format("{}", job.lease_seconds));
  }
  if (job.collective_timeout > 0) {
    environment.emplace_back("DSRUN_COLLECTIVE_TIMEOUT", fmt::format("{}", job.collective_timeout));
  }
  const std::vector<std::string>& devices = plan.host_of(rank).devices;
  if (!devices.empty()) {
    environment.emplace_back("CUDA_VISIBLE_DEVICES", job.one_device_per_rank
                                                         ? devices[rank.local_rank]
                                                         : List(devices, ","));
  }
  const int threads =
      rank.cores.empty() ? job.threads_per_rank : static_cast<int>(rank.cores.size());
  if (threads > 0 && !job.user_set_threads) {
    environment.emplace_back("OMP_NUM_THREADS", std::to_string(threads));
  }
  AddTorchElastic(plan, rank, job, &environment);
  if (!job.job_id.empty()) environment.emplace_back("DSRUN_JOB_ID", job.job_id);
  environment.emplace_back("DSRUN_GENERATION", std::to_string(job.generation));
  return environment;
}

namespace {

std::vector<std::string> ListOwnVariables() {
  const WorldPlan one_rank = PlanWorld({{.host = "host", .slots = {0}}});
  const JobEnvironment known{.job_id = "job", .master_addr = "address", .master_port = 1};
  const Environment own = MakeRankEnvironment(one_rank, one_rank.ranks.front(), known);
  std::vector<std::string> names;
  for (const auto& [name, value] : own) names.push_back(name);
  return names;
}

}  // namespace

bool IsOwnVariable(std::string_view name) {
  static const std::vector<std::string> names = ListOwnVariables();
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string ChooseMasterAddress(const WorldPlan& plan) {
  if (plan.hosts.size() == 1) return "127.0.0.1";
  const std::string& name = plan.hosts.front().host;
  return name.substr(name.find('@') + 1);
}

Environment ShowRankEnvironment(const WorldPlan& world, const PlannedRank& rank,
                                JobEnvironment job) {
  const JobHost& host = world.host_of(rank);
  job.user_set_threads = host.sets_threads;
  Environment exports = host.exports;
  std::erase_if(exports, [&](const auto& variable) {
    return IsOwnVariable(variable.first) ||
           (variable.first == "OMP_NUM_THREADS" && !host.sets_threads);
  });
  Environment shown = Overlay(std::move(exports), MakeRankEnvironment(world, rank, job));
  for (auto& [name, value] : shown) {
    if (IsSecretName(name)) value = kRedacted;
  }
  return shown;
}

}  // namespace ds::cli
