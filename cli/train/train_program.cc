#include "cli/train/train_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "proto/job_directory.h"
#include "runtime/base/path_exists.h"
#include "runtime/checkpoint_format/catalog.h"
#include "runtime/checkpoint_format/file_names.h"
#include "runtime/checkpoint_format/folder_mark.h"
#include "runtime/checkpoint_format/latest.h"
#include "runtime/checkpoint_format/lineage.h"
#include "runtime/checkpoint_format/verify.h"
#include "runtime/plan/estimate/predict_memory.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

// Returns "step-3, step-6", or "none".
std::string ShowCheckpoints(const fs::path& root) {
  std::string names;
  const auto listed = checkpoint::ListCheckpoints(root);
  if (!listed.ok()) return "none";
  for (const checkpoint::ListedCheckpoint& each : *listed) {
    names += (names.empty() ? "" : ", ") + each.directory.filename().string();
  }
  return names.empty() ? "none" : names;
}

StatusOr<ResumePoint> NamedCheckpoint(const fs::path& root, const std::string& name) {
  const auto step = checkpoint::StepOfDirectoryName(name);
  const fs::path directory = step ? checkpoint::DirectoryOfStep(root, *step) : root / name;
  const StatusOr<checkpoint::VerifyReport> report = checkpoint::VerifyCheckpoint(directory);
  if (!report.ok() && report.status().code() == StatusCode::kNotFound) {
    return NotFoundError("there is no checkpoint " + name + " in " + root.string() +
                         " (there is: " + ShowCheckpoints(root) + ")");
  }
  if (!report.ok()) return report.status();
  if (!report->ok()) {
    return DataLossError("checkpoint " + directory.string() +
                         " is damaged: " + checkpoint::Describe(report->damages.front()));
  }
  return ResumePoint{directory.string(), report->step};
}

// Describes how to resume from a checkpoint outside the latest lineage; "" if there is none.
std::string DescribeOthers(const std::string& root) {
  const auto listed = checkpoint::ListCheckpoints(root);
  const auto latest = checkpoint::ReadLatest(root);
  if (!listed.ok() || listed->empty() || !latest.ok() || !latest->has_value()) return "";
  return fmt::format(
      ": '{}' names {}, and {} is not one of its predecessors; --checkpoint resumes from any",
      checkpoint::kLatestFile, checkpoint::StepDirectoryName((*latest)->step),
      listed->back().directory.filename().string());
}

}  // namespace

StatusOr<ResumePoint> FindResumePoint(const std::string& root, const std::string& named,
                                      std::vector<std::string>* notices) {
  if (!named.empty()) return NamedCheckpoint(root, named);
  const StatusOr<checkpoint::NewestCheckpoint> newest = checkpoint::FindNewestGood(root);
  if (!newest.ok() && newest.status().code() != StatusCode::kNotFound) return newest.status();
  if (newest.ok()) {
    for (const checkpoint::SkippedCheckpoint& skipped : newest->skipped) {
      notices->push_back("checkpoint " + skipped.directory.string() +
                         " is skipped: " + skipped.reason);
    }
    if (newest->found.has_value()) {
      return ResumePoint{newest->found->directory.string(), newest->found->step};
    }
  }
  std::string message = "there is no checkpoint to resume from in " + root;
  if (newest.ok() && !newest->skipped.empty()) {
    const auto& [directory, reason] = newest->skipped.front();
    message += ": " + directory.filename().string() + " is skipped: " + reason;
  } else if (newest.ok()) {
    message += DescribeOthers(root);
  }
  return NotFoundError(std::move(message));
}

Status CheckHoldsNoCheckpoints(const fs::path& root) {
  DS_ASSIGN_OR_RETURN(const bool exists, PathExists(root));
  if (!exists) return OkStatus();
  DS_ASSIGN_OR_RETURN(const auto listed, checkpoint::ListCheckpoints(root));
  if (listed.empty()) return OkStatus();
  return AlreadyExistsError(
      root.string() + " has checkpoints of another run, such as " +
      listed.back().directory.filename().string() +
      ": move them away, or name another folder by --run_dir; dsrun resume RUN_DIR resumes a run");
}

std::string TrainProgram::AdviseOnMemory(std::int64_t rank_bytes, bool on_gpus) const {
  if (!predicted_) return "";
  engine::JobShape shape = predicted_->shape;
  shape.setting.on_gpu = on_gpus;
  return plan::AdviseOnMemory(predicted_->config, shape, rank_bytes);
}

double TrainProgram::LeftMinutes() const {
  constexpr double kNext = 1e-6;  // trains one more step, because 0 means no limit
  const std::chrono::duration<double, std::ratio<60>> gone = clock_.Now() - begin_;
  return job_.max_minutes > 0.0 ? std::max(kNext, job_.max_minutes - gone.count()) : 0.0;
}

namespace {

// Converts a write error to kUnavailable if a restart should wait: a file server may come back
// soon. A full disk and a read-only folder are permanent, and a first start has written nothing
// yet.
Status AsTrouble(const Status& status, bool restarts) {
  const bool may_pass =
      status.code() == StatusCode::kUnknown || status.code() == StatusCode::kDeadlineExceeded;
  return restarts && may_pass ? UnavailableError(status.message()) : status;
}

// Names the run's checkpoint and the reason why it is unusable; "" if it had none.
StatusOr<std::string> DescribeUnusable(const fs::path& root,
                                       const std::vector<std::string>& notices) {
  if (!notices.empty()) return notices.front();
  DS_ASSIGN_OR_RETURN(const auto latest, checkpoint::ReadLatest(root));
  if (!latest.has_value()) return std::string();
  return (root / checkpoint::kLatestFile).string() + " names " +
         checkpoint::StepDirectoryName(latest->step) + ", which is gone";
}

}  // namespace

void TrainProgram::RemoveMark() const {
  if (!mark_.empty()) checkpoint::RemoveFolderMark(job_.checkpoint_dir, mark_);
}

StatusOr<RankProgram> TrainProgram::ForGeneration(int generation) const {
  RankProgram program{
      .argv = {"", "train", std::string(::dsrun::v1::kJobDirectory) + "/train.json"}};
  config::TrainJob job = job_;
  const bool restarts = generation > first_generation_;
  if (restarts) {
    job.max_minutes = LeftMinutes();
    const StatusOr<ResumePoint> point = FindResumePoint(job.checkpoint_dir, "", &program.notices);
    if (point.ok()) {
      job.resume_from = point->directory;
      program.notices.push_back("resuming from " + point->directory);
    } else if (point.status().code() == StatusCode::kNotFound) {
      program.begins_again = true;
      DS_ASSIGN_OR_RETURN(program.unusable, DescribeUnusable(job.checkpoint_dir, program.notices));
      program.notices.push_back(program.unusable.empty()
                                    ? "no checkpoint yet: starting again as at first"
                                    : "no checkpoint can be used: starting again as at first");
    } else {
      return point.status();
    }
  }
  job.start = checkpoint::DrawStart();
  if (!job.resume_from.empty()) {
    const Status taken = checkpoint::TakeOver(job.resume_from, generation, job.start);
    if (!taken.ok()) {
      return AsTrouble(taken, restarts).WithContext("cannot resume from " + job.resume_from);
    }
  }
  if (job.saves()) {
    StatusOr<std::string> mark = checkpoint::MakeFolderMark(job.checkpoint_dir);
    if (!mark.ok()) {
      return AsTrouble(mark.status(), restarts).WithContext("no checkpoint can be written");
    }
    RemoveMark();
    mark_ = *std::move(mark);
    job.checkpoint_mark = mark_;
  }
  program.files = {{"train.json", config::ToJson(job)}};
  return program;
}

}  // namespace ds::cli
