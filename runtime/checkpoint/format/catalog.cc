#include "runtime/checkpoint/format/catalog.h"

#include <algorithm>
#include <set>
#include <system_error>

#include "runtime/checkpoint/format/file_names.h"
#include "runtime/checkpoint/format/latest.h"
#include "runtime/checkpoint/format/manifest.h"
#include "runtime/checkpoint/format/verify.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;

struct Candidate {
  ListedCheckpoint listed;
  std::optional<Lineage> lineage;  // nothing when the manifest is damaged
  bool told = false;               // by the manifest
};

std::vector<Candidate> ReadCandidates(const std::vector<ListedCheckpoint>& listed) {
  std::vector<Candidate> candidates;
  for (const ListedCheckpoint& each : listed) {
    Candidate candidate{.listed = each, .lineage = std::nullopt};
    if (const StatusOr<Manifest> manifest = ReadManifest(each.directory); manifest.ok()) {
      candidate.told = manifest->lineage.has_value();
      candidate.lineage = candidate.told ? *manifest->lineage : AssumeLineage(each.step);
    }
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

// The newest checkpoint of the living line, good or not, there or not.
struct Head {
  std::int64_t step = -1;
  Lineage lineage;
};

// Without a `latest` that names one, it is the highest step of the newest generation.
Head HighestOf(const std::vector<Candidate>& candidates) {
  Head head;
  for (const Candidate& candidate : candidates) {
    if (!candidate.lineage || candidate.lineage->generation < head.lineage.generation) continue;
    head = {candidate.listed.step, *candidate.lineage};
  }
  return head;
}

// The checkpoint that a generation from `may_save` on wrote right behind `head`: a crash came, or
// the disk was full, before `latest` named it.
const Candidate* FindChild(const std::vector<Candidate>& candidates, const Head& head,
                           std::int64_t may_save) {
  const CheckpointId parent{head.lineage.generation, head.step};
  const Candidate* child = nullptr;
  for (const Candidate& candidate : candidates) {
    const bool follows = candidate.told && candidate.listed.step > head.step &&
                         candidate.lineage->generation >= may_save &&
                         !candidate.lineage->past.empty() &&
                         candidate.lineage->past.back() == parent;
    if (follows) child = &candidate;
  }
  return child;
}

Head FindHead(const std::vector<Candidate>& candidates, const std::optional<Latest>& latest) {
  if (!latest) return HighestOf(candidates);
  Head head{latest->step, latest->lineage.value_or(AssumeLineage(latest->step))};
  for (const Candidate& candidate : candidates) {
    if (candidate.listed.latest && candidate.lineage) head.lineage = *candidate.lineage;
  }
  while (const Candidate* child = FindChild(candidates, head, latest->generation)) {
    head = {child->listed.step, *child->lineage};
  }
  return head;
}

// One whose manifest is damaged may be: it is not good anyway, and the user hears of it.
bool MayBeOnLine(const Candidate& candidate, const Head& head) {
  if (!candidate.lineage || candidate.listed.step == head.step) return true;
  return candidate.listed.step < head.step &&
         ComesFrom(head.lineage, {candidate.lineage->generation, candidate.listed.step});
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
  const std::optional<Latest> latest = ReadLatest(root);
  std::vector<ListedCheckpoint> checkpoints;
  for (const std::int64_t step : steps) {
    checkpoints.push_back({DirectoryOfStep(root, step), step, latest && latest->step == step});
  }
  return checkpoints;
}

StatusOr<NewestCheckpoint> FindNewestGood(const fs::path& root) {
  DS_ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> listed, ListCheckpoints(root));
  const std::vector<Candidate> candidates = ReadCandidates(listed);
  const Head head = FindHead(candidates, ReadLatest(root));
  NewestCheckpoint newest;
  // A line's steps ascend: the highest one is the newest.
  for (auto candidate = candidates.rbegin(); candidate != candidates.rend(); ++candidate) {
    if (!MayBeOnLine(*candidate, head)) continue;
    std::string problem = FirstProblem(candidate->listed.directory);
    if (problem.empty()) {
      newest.found = candidate->listed;
      break;
    }
    newest.skipped.push_back({candidate->listed.directory, std::move(problem)});
  }
  return newest;
}

}  // namespace ds::checkpoint
