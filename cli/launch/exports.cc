#include "cli/launch/exports.h"

#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "cli/launch/env_file.h"
#include "cli/launch/secrets.h"

namespace ds::cli {
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

void Set(std::string name, std::string value, Environment* environment) {
  for (auto& [each, old] : *environment) {
    if (each == name) {
      old = std::move(value);
      return;
    }
  }
  environment->emplace_back(std::move(name), std::move(value));
}

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
  for (auto& [name, value] : shown)
    value = IsSecretName(name) ? std::string(kRedacted) : RedactText(value);
  return shown;
}

Environment Overlay(Environment base, const Environment& over) {
  for (const auto& [name, value] : over) Set(name, value, &base);
  return base;
}

StatusOr<GatheredExports> GatherExports(const LaunchFlags& flags, const Environment& shell,
                                        const std::filesystem::path& working_directory) {
  GatheredExports gathered;
  ExportRequest request{.words = flags.exports};
  std::vector<std::string> names;
  for (const std::filesystem::path& path : FindUsualEnvFiles(
           Value(shell, "DS_ENV_FILE"), Value(shell, "HOME").value_or(""), working_directory)) {
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

}  // namespace ds::cli
