#include "runtime/checkpoint/format/catalog.h"

#include <algorithm>
#include <set>
#include <system_error>

#include "runtime/base/files.h"
#include "runtime/checkpoint/format/file_names.h"
#include "runtime/checkpoint/format/verify.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;

// The folder name in root/latest, or "" when the file is missing or says something else.
std::string LatestName(const fs::path& root) {
  constexpr std::uint64_t kMaxBytes = 64;
  const StatusOr<std::string> text = ReadFile(root / kLatestFile, kMaxBytes);
  if (!text.ok()) return "";
  const std::string name = text->substr(0, text->find('\n'));
  return StepOfDirectoryName(name) ? name : "";
}

std::string FirstProblem(const fs::path& directory) {
  const StatusOr<VerifyReport> report = VerifyCheckpoint(directory);
  if (!report.ok()) return report.status().message();
  return report->ok() ? "" : Describe(report->damages.front());
}

}  // namespace

fs::path DirectoryOfStep(const fs::path& root, std::int64_t step) {
  const fs::path directory = root / StepDirectoryName(step);
  const fs::path replaced = directory.string() + kReplacedSuffix;
  std::error_code ignored;
  return !fs::exists(directory, ignored) && fs::exists(replaced, ignored) ? replaced : directory;
}

StatusOr<std::vector<ListedCheckpoint>> ListCheckpoints(const fs::path& root) {
  std::error_code error;
  fs::directory_iterator entries(root, error);
  if (error) return ErrnoError(error.value(), root.string());
  std::set<std::int64_t> steps;
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    const auto step = StepOfDirectoryName(name);
    const auto replaced = StepOfReplacedName(name);
    std::error_code ignored;
    if ((step || replaced) && entries->is_directory(ignored))
      steps.insert(step ? *step : *replaced);
    // increment() turns the iterator into the end on an error.
  }
  if (error) return ErrnoError(error.value(), root.string());
  const std::string latest = LatestName(root);
  std::vector<ListedCheckpoint> checkpoints;
  for (const std::int64_t step : steps) {
    checkpoints.push_back({DirectoryOfStep(root, step), step, StepDirectoryName(step) == latest});
  }
  return checkpoints;
}

StatusOr<NewestCheckpoint> FindNewestGood(const fs::path& root) {
  DS_ASSIGN_OR_RETURN(std::vector<ListedCheckpoint> candidates, ListCheckpoints(root));
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.latest != b.latest ? a.latest : a.step > b.step;
  });
  NewestCheckpoint newest;
  for (const ListedCheckpoint& candidate : candidates) {
    std::string problem = FirstProblem(candidate.directory);
    if (problem.empty()) {
      newest.found = candidate;
      break;
    }
    newest.skipped.push_back({candidate.directory, std::move(problem)});
  }
  return newest;
}

}  // namespace ds::checkpoint
