#include "cli/job/gather_exports.h"

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "cli/plan/env_file.h"
#include "cli/plan/exports.h"
#include "cli/plan/secrets.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// Intel's OpenMP would move the threads of a bound rank to cores of its own choice.
Status CheckCoreBinding(const Environment& exports) {
  if (!RankVariable(exports, "KMP_AFFINITY").has_value()) return OkStatus();
  return InvalidArgumentError(
      "--bind_cores_to_rank contradicts KMP_AFFINITY in the environment; unset one of them");
}

}  // namespace

StatusOr<GatheredExports> GatherExports(const LaunchFlags& flags) {
  GatheredExports gathered;
  ExportRequest request{.words = flags.exports};
  for (const fs::path& path :
       UsualEnvFiles(Variable("DS_ENV_FILE"), Variable("HOME").value_or(""), fs::current_path())) {
    DS_ASSIGN_OR_RETURN(Environment file, ReadEnvFile(path));
    gathered.notices.push_back("ranks get the variables of " + path.string());
    request.files.push_back(std::move(file));
  }
  for (const std::string& path : flags.env_files) {
    DS_ASSIGN_OR_RETURN(Environment file, ReadEnvFile(path));
    request.files.push_back(std::move(file));
  }
  DS_ASSIGN_OR_RETURN(gathered.environment, ResolveExports(request, ShellEnvironment()));
  if (flags.bind_cores_to_rank) DS_RETURN_IF_ERROR(CheckCoreBinding(gathered.environment));
  return gathered;
}

std::vector<std::string> StoredExports(const std::vector<std::string>& words) {
  std::vector<std::string> stored;
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    stored.push_back(IsSecretName(name) ? name : word);
  }
  return stored;
}

}  // namespace ds::cli
