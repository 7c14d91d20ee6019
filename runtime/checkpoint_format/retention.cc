#include "runtime/checkpoint_format/retention.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/files.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint_format/catalog.h"
#include "runtime/checkpoint_format/commit.h"
#include "runtime/checkpoint_format/file_names.h"
#include "runtime/checkpoint_format/latest.h"
#include "runtime/checkpoint_format/manifest.h"
#include "runtime/checkpoint_format/writers.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;

// Returns true when the manifest of root/step-N proves that the lineage descends from this
// checkpoint.
bool IsOfLineage(const fs::path& root, std::int64_t step, const Lineage& lineage) {
  if (!CheckOwnFolder(root / StepDirectoryName(step)).ok()) return false;
  const StatusOr<Manifest> manifest = ReadManifest(root / StepDirectoryName(step));
  if (!manifest.ok() || manifest->step != step) return false;
  return DescendsFrom(lineage, IdOf(manifest->lineage.value_or(Lineage{}), step));
}

// Returns true when `latest` names the parent of `lineage`. Otherwise the head is found by its
// parents, so these must stay.
bool NamesTheNewest(const fs::path& root, const Lineage& lineage) {
  const StatusOr<std::optional<Latest>> latest = ReadLatest(root);
  return latest.ok() && latest->has_value() && !lineage.past.empty() &&
         (*latest)->step == lineage.past.back().step;
}

Status CheckRemovable(const fs::path& root, std::int64_t step, const Lineage& lineage) {
  DS_RETURN_IF_ERROR(CheckMaySave(root, lineage));
  const fs::path directory = root / StepDirectoryName(step);
  if (!NamesTheNewest(root, lineage) || step == lineage.past.back().step) {
    return FailedPreconditionError(fmt::format(
        "{} stays: '{}' names no newer checkpoint of this run", directory.string(), kLatestFile));
  }
  DS_RETURN_IF_ERROR(CheckOwnFolder(directory));
  if (!IsOfLineage(root, step, lineage)) {
    return FailedPreconditionError(directory.string() +
                                   " stays: its manifest does not show that this run wrote it");
  }
  DS_ASSIGN_OR_RETURN(const std::string foreign, FindForeignEntry(directory));
  if (foreign.empty()) return OkStatus();
  return FailedPreconditionError(DescribeForeign(directory, foreign));
}

// Renames the checkpoint under the folder's lock, if it may be removed. Returns the new name.
StatusOr<fs::path> TakeAway(const fs::path& root, std::int64_t step, const Lineage& lineage,
                            FileSystem& system) {
  DS_ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::Take(root, system));
  DS_RETURN_IF_ERROR(CheckRemovable(root, step, lineage));
  const fs::path removed = UnfinishedDirectory(root, DrawUnfinishedName(step, lineage.generation));
  DS_RETURN_IF_ERROR(RenameDurably(root / StepDirectoryName(step), removed, system));
  return removed;
}

// Renames root/step-N under the folder's lock, if `program` has written all of it and `latest`
// names the step `newest`. Returns the new name.
StatusOr<fs::path> TakeReplacedAway(const fs::path& root, std::int64_t step, std::int64_t newest,
                                    std::string_view program, FileSystem& system) {
  const fs::path directory = root / StepDirectoryName(step);
  DS_ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::Take(root, system));
  DS_ASSIGN_OR_RETURN(const std::optional<Latest> latest, ReadLatest(root));
  DS_RETURN_IF_ERROR(CheckOwnFolder(directory));
  DS_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(directory));
  if (!latest || latest->step != newest || manifest.step != step ||
      manifest.written_by.value("program", "") != program) {
    return FailedPreconditionError(directory.string() + " stays: its manifest does not show that " +
                                   std::string(program) + " wrote it before");
  }
  DS_ASSIGN_OR_RETURN(const std::string foreign, FindForeignEntry(directory));
  if (!foreign.empty()) return FailedPreconditionError(DescribeForeign(directory, foreign));
  const fs::path removed = UnfinishedDirectory(root, DrawUnfinishedName(step, 0));
  DS_RETURN_IF_ERROR(RenameDurably(directory, removed, system));
  return removed;
}

}  // namespace

std::vector<std::int64_t> ChooseStepsToRemove(std::span<const std::int64_t> steps,
                                              const RetentionPolicy& policy) {
  if (policy.limit <= 0 || steps.empty()) return {};
  std::vector<std::int64_t> others;  // steps with no reason to stay but their age
  std::int64_t left = policy.limit;
  for (const std::int64_t step : steps) {
    if (step == steps.back() || step == policy.best) {
      --left;
    } else {
      others.push_back(step);
    }
  }
  const auto kept = static_cast<std::size_t>(std::max<std::int64_t>(left, 0));
  others.resize(others.size() - std::min(kept, others.size()));
  return others;
}

void PruneCheckpoints(const fs::path& root, const RetentionPolicy& policy, const Lineage& lineage,
                      FileSystem& system) {
  if (policy.limit <= 0 || !NamesTheNewest(root, lineage)) return;
  const StatusOr<std::vector<ListedCheckpoint>> listed = ListCheckpoints(root);
  Status status = listed.status();
  std::vector<std::int64_t> own;
  for (const ListedCheckpoint& each : listed.ok() ? *listed : std::vector<ListedCheckpoint>()) {
    if (IsOfLineage(root, each.step, lineage)) own.push_back(each.step);
  }
  if (!status.ok()) LogWarning("older checkpoints are left: " + status.message());
  for (const std::int64_t step : ChooseStepsToRemove(own, policy)) {
    status = RemoveCheckpoint(root, step, lineage, system);
    if (!status.ok()) LogWarning("an older checkpoint is left: " + status.message());
    if (!status.ok() && status.code() != StatusCode::kFailedPrecondition) break;
  }
}

Status RemoveCheckpoint(const fs::path& root, std::int64_t step, const Lineage& lineage,
                        FileSystem& system) {
  DS_ASSIGN_OR_RETURN(const fs::path removed, TakeAway(root, step, lineage, system));
  return RemoveMadeFolder(removed, system);
}

void RemoveReplacedCheckpoints(const fs::path& root, std::int64_t step, std::string_view program,
                               FileSystem& system) {
  const StatusOr<std::vector<ListedCheckpoint>> listed = ListCheckpoints(root);
  if (!listed.ok()) {
    return LogWarning("older checkpoints are left: " + listed.status().message());
  }
  for (const ListedCheckpoint& each : *listed) {
    if (each.step == step) continue;
    const StatusOr<fs::path> taken = TakeReplacedAway(root, each.step, step, program, system);
    const Status removed = taken.ok() ? RemoveMadeFolder(*taken, system) : taken.status();
    if (!removed.ok()) LogWarning("an older checkpoint is left: " + removed.message());
  }
}

}  // namespace ds::checkpoint
