#include "runtime/checkpoint_format/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "runtime/checkpoint_format/file_names.h"
#include "runtime/checkpoint_format/latest.h"
#include "runtime/checkpoint_format/manifest.h"
#include "runtime/checkpoint_format/reading.h"
#include "runtime/checkpoint_format/verify.h"
#include "runtime/checkpoint_format/writers.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;

struct Candidate {
  ListedCheckpoint listed;
  std::optional<Lineage> lineage;  // nullopt when the manifest is damaged or cannot be read now
  bool has_lineage = false;        // true if the manifest contains a lineage
  Status unknown;                  // the error if the manifest cannot be read now
};

std::vector<Candidate> ReadCandidates(const std::vector<ListedCheckpoint>& listed,
                                      FileSystem& system) {
  std::vector<Candidate> candidates;
  for (const ListedCheckpoint& each : listed) {
    Candidate candidate{.listed = each, .lineage = std::nullopt, .unknown = {}};
    const StatusOr<Manifest> manifest = ReadManifest(each.directory, system);
    if (manifest.ok()) {
      candidate.has_lineage = manifest->lineage.has_value();
      candidate.lineage = candidate.has_lineage ? *manifest->lineage : AssumeLineage(each.step);
    } else if (manifest.status().code() == StatusCode::kUnavailable) {
      candidate.unknown = manifest.status();
    }
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

// The newest checkpoint of the living line. It may be damaged or missing.
struct Head {
  std::int64_t step = -1;
  Lineage lineage;
};

// Returns the head when no `latest` names one: the highest step of the newest generation.
Head HighestOf(const std::vector<Candidate>& candidates) {
  Head head;
  for (const Candidate& candidate : candidates) {
    if (!candidate.lineage || candidate.lineage->generation < head.lineage.generation) continue;
    head = {candidate.listed.step, *candidate.lineage};
  }
  return head;
}

// Refuses checkpoints of two jobs, because without a `latest` the folder's owner is unknown.
Status CheckOneJob(const std::vector<Candidate>& candidates, const fs::path& root) {
  const Candidate* first = nullptr;
  for (const Candidate& candidate : candidates) {
    if (!candidate.lineage) continue;
    if (first == nullptr) first = &candidate;
    if (MayBeOfOneJob(*first->lineage, *candidate.lineage)) continue;
    return FailedPreconditionError(fmt::format(
        "{} has checkpoints of two jobs, such as {} and {}, and no '{}' that names one: move those "
        "of one job to another folder, or name a checkpoint",
        root.string(), first->listed.directory.filename().string(),
        candidate.listed.directory.filename().string(), kLatestFile));
  }
  return OkStatus();
}

// Returns true if ranks that may save, according to `latest`, wrote the checkpoint.
bool IsOfWriter(const Lineage& lineage, const Latest& latest) {
  return latest.start != 0 ? lineage.start == latest.start
                           : lineage.generation >= latest.generation;
}

// Returns the direct successor of `head` written by ranks that may save. It exists when a crash or
// a full disk prevented `latest` from naming it.
const Candidate* FindChild(const std::vector<Candidate>& candidates, const Head& head,
                           const Latest& latest) {
  const CheckpointId parent = IdOf(head.lineage, head.step);
  const Candidate* child = nullptr;
  for (const Candidate& candidate : candidates) {
    const bool follows = candidate.has_lineage && candidate.listed.step > head.step &&
                         IsOfWriter(*candidate.lineage, latest) &&
                         !candidate.lineage->past.empty() &&
                         candidate.lineage->past.back() == parent;
    if (follows) child = &candidate;
  }
  return child;
}

// True when the same start of ranks wrote checkpoints of both lineages.
bool HaveOneStart(const Lineage& a, const Lineage& b) {
  return IsOfOneStart(IdOf(a, /*step=*/0), IdOf(b, /*step=*/0));
}

// Returns true if the candidate at the step named by `latest` belongs to this job. A user may have
// copied another job's checkpoint there. A newer start of this job that saved the step again has
// its parent on the line.
bool IsHeadOf(const Candidate& candidate, const Latest& latest) {
  if (!candidate.listed.latest || !candidate.lineage) return false;
  if (!latest.lineage || HaveOneStart(*candidate.lineage, *latest.lineage)) return true;
  return !candidate.lineage->past.empty() &&
         DescendsFrom(*latest.lineage, candidate.lineage->past.back());
}

Head FindHead(const std::vector<Candidate>& candidates, const std::optional<Latest>& latest) {
  if (!latest) return HighestOf(candidates);
  Head head{latest->step, latest->lineage.value_or(AssumeLineage(latest->step))};
  for (const Candidate& candidate : candidates) {
    if (IsHeadOf(candidate, *latest)) head.lineage = *candidate.lineage;
  }
  while (const Candidate* child = FindChild(candidates, head, *latest)) {
    head = {child->listed.step, *child->lineage};
  }
  return head;
}

// Returns true for a candidate on the line, and for one with an unreadable manifest: it is not
// good, but its problem is reported.
bool MayBeOnLine(const Candidate& candidate, const Head& head) {
  if (!candidate.lineage || candidate.listed.step == head.step) return true;
  return candidate.listed.step < head.step &&
         DescendsFrom(head.lineage, IdOf(*candidate.lineage, candidate.listed.step));
}

// Returns true if another job wrote the checkpoint at the head's step.
bool IsForeign(const Candidate& candidate, const Head& head) {
  return candidate.lineage && candidate.listed.step == head.step &&
         !HaveOneStart(*candidate.lineage, head.lineage);
}

// Returns the reason why a job cannot resume from the checkpoint; "" for a good one.
StatusOr<std::string> FirstProblem(const Candidate& candidate, const Head& head,
                                   FileSystem& system) {
  if (IsForeign(candidate, head)) {
    return std::string("it is another job's: '") + kLatestFile + "' names another";
  }
  const StatusOr<VerifyReport> report = VerifyCheckpoint(candidate.listed.directory, system);
  if (report.ok() && report->ok()) return std::string();
  if (report.status().code() == StatusCode::kUnavailable) return report.status();
  return "it is damaged: " +
         (report.ok() ? Describe(report->damages.front()) : report.status().message());
}

// Returns the first unreadable manifest's error. Without a `latest`, any manifest may hold the
// newest generation.
Status FirstUnknown(const std::vector<Candidate>& candidates) {
  for (const Candidate& candidate : candidates) {
    if (!candidate.unknown.ok()) return candidate.unknown;
  }
  return OkStatus();
}

}  // namespace

fs::path DirectoryOfStep(const fs::path& root, std::int64_t step) {
  const fs::path directory = root / StepDirectoryName(step);
  const fs::path replaced = directory.string() + kReplacedSuffix;
  const StatusOr<bool> is_there = Exists(directory);
  if (!is_there.ok() || *is_there) return directory;
  const StatusOr<bool> older = HasWriterMark(replaced);
  return older.ok() && *older ? replaced : directory;
}

StatusOr<std::vector<ListedCheckpoint>> ListCheckpoints(const fs::path& root, FileSystem& system) {
  std::error_code error;
  fs::directory_iterator entries(root, error);
  if (error) return ReadError(error.value(), root.string());
  std::set<std::int64_t> steps;
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    const auto step = StepOfDirectoryName(name);
    const auto replaced = StepOfReplacedName(name);
    std::error_code failed;
    DS_ASSIGN_OR_RETURN(const bool is_replaced,
                        replaced ? HasWriterMark(entries->path()) : StatusOr<bool>(false));
    if ((step || is_replaced) && entries->is_directory(failed)) {
      steps.insert(step ? *step : *replaced);
    }
    if (failed && !ProvesAbsence(failed.value())) {
      return ReadError(failed.value(), entries->path().string());
    }
    // On an error increment() sets the iterator to the end.
  }
  if (error) return ReadError(error.value(), root.string());
  DS_ASSIGN_OR_RETURN(const std::optional<Latest> latest, ReadLatest(root, system));
  std::vector<ListedCheckpoint> checkpoints;
  for (const std::int64_t step : steps) {
    checkpoints.push_back({DirectoryOfStep(root, step), step, latest && latest->step == step});
  }
  return checkpoints;
}

StatusOr<NewestCheckpoint> FindNewestGood(const fs::path& root, FileSystem& system) {
  DS_ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> listed, ListCheckpoints(root, system));
  const std::vector<Candidate> candidates = ReadCandidates(listed, system);
  DS_ASSIGN_OR_RETURN(const std::optional<Latest> latest, ReadLatest(root, system));
  if (!latest) {
    DS_RETURN_IF_ERROR(FirstUnknown(candidates));
    DS_RETURN_IF_ERROR(CheckOneJob(candidates, root));
  }
  const Head head = FindHead(candidates, latest);
  NewestCheckpoint newest;
  // The steps of a line ascend, so the highest one is the newest.
  for (auto candidate = candidates.rbegin(); candidate != candidates.rend(); ++candidate) {
    if (!MayBeOnLine(*candidate, head)) continue;
    DS_RETURN_IF_ERROR(candidate->unknown);
    DS_ASSIGN_OR_RETURN(std::string problem, FirstProblem(*candidate, head, system));
    if (problem.empty()) {
      newest.found = candidate->listed;
      break;
    }
    newest.skipped.push_back({candidate->listed.directory, std::move(problem)});
  }
  return newest;
}

}  // namespace ds::checkpoint
