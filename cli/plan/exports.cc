#include "cli/plan/exports.h"

#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "cli/plan/env_file.h"

namespace ds::cli {
namespace {

constexpr std::array<std::string_view, 26> kRemotePrefixes = {
    "NCCL", "PYTHON", "MLFLOW", "MV2", "UCX", "DSRUN_INTERFACE", "DSRUN_COLLECTIVE_TIMEOUT",
    "DEEPSPEED_TIMEOUT",
    // The Nebula service and the Azure hosts it runs on.
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

// Intel's OpenMP would move the threads of a bound rank to cores of its own choice.
Status CheckCoreBinding(const Environment& exports, const Environment& shell) {
  if (FindRankVariable(exports, shell, "KMP_AFFINITY") == nullptr) return OkStatus();
  return InvalidArgumentError(
      "--bind_cores_to_rank contradicts KMP_AFFINITY in the environment; unset one of them");
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

Environment Overlay(Environment base, const Environment& over) {
  for (const auto& [name, value] : over) Set(name, value, &base);
  return base;
}

StatusOr<GatheredExports> GatherExports(const LaunchFlags& flags, const Environment& shell,
                                        const std::filesystem::path& working_directory) {
  GatheredExports gathered;
  ExportRequest request{.words = flags.exports};
  for (const std::filesystem::path& path : FindUsualEnvFiles(
           Value(shell, "DS_ENV_FILE"), Value(shell, "HOME").value_or(""), working_directory)) {
    DS_ASSIGN_OR_RETURN(Environment file, ReadEnvFile(path));
    gathered.notices.push_back("ranks get the variables of " + path.string());
    request.files.push_back(std::move(file));
  }
  for (const std::string& path : flags.env_files) {
    DS_ASSIGN_OR_RETURN(Environment file, ReadEnvFile(path));
    request.files.push_back(std::move(file));
  }
  DS_ASSIGN_OR_RETURN(gathered.environment, ResolveExports(request, shell));
  if (flags.bind_cores_to_rank) DS_RETURN_IF_ERROR(CheckCoreBinding(gathered.environment, shell));
  return gathered;
}

}  // namespace ds::cli
