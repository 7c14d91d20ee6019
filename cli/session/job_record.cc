#include "cli/session/job_record.h"

#include "cli/job/final_status.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"

namespace ds::cli {

void JobRecord::ShowNotices() {
  const std::lock_guard lock(mutex_);
  for (const std::string& notice : plan_.notices) console_->ShowNotice(notice);
  if (!plan_.spares.empty() && plan_.flags.max_restarts == 0) {
    console_->ShowNotice("spare hosts take part in restarts only, and --max_restarts is not given");
  }
}

void JobRecord::OnPrepared(const std::string& host, const v1::PrepareResponse& response) {
  const std::lock_guard lock(mutex_);
  for (const v1::Finding& finding : response.findings()) {
    if (finding.level() != v1::Finding::WARN) continue;
    console_->ShowNotice("host " + host + ": " + finding.message() +
                         (finding.hint().empty() ? "" : "; " + finding.hint()));
  }
  const bool may_be_surprised = plan_.purpose.built_in && plan_.flags.device == Device::kAuto;
  if (may_be_surprised && !response.ranks_on_gpus()) {
    console_->ShowNotice("host " + host + " has no GPU: its ranks run on CPU");
  }
}

Status JobRecord::OnEvent(const HostEvent& event) {
  DS_RETURN_IF_ERROR(run_directory_->Append(event));
  const std::lock_guard lock(mutex_);
  console_->OnEvent(event);
  return OkStatus();
}

void JobRecord::OnNotice(const std::string& text) {
  const std::lock_guard lock(mutex_);
  console_->ShowNotice(text);
}

void JobRecord::ShowWarning(const std::string& text) {
  const std::lock_guard lock(mutex_);
  console_->ShowWarning(text);
}

void JobRecord::OnQuiet() {
  // What fails here fails again with the next output.
  static_cast<void>(run_directory_->Flush());
  const std::lock_guard lock(mutex_);
  console_->OnQuiet();
}

void JobRecord::ShowSummary() {
  const std::string path = ShortenPath(run_directory_->path());
  console_->ShowSummaryLine("done; the run directory is " + path);
  console_->ShowSummaryLine("  metrics      " + path + "/metrics.jsonl");
  console_->ShowSummaryLine("  config       " + path + "/config.resolved.json");
  console_->ShowSummaryLine("  logs         " + path + "/logs");
  console_->ShowSummaryLine("  checkpoints  " + ShortenPath(run_directory_->checkpoints()));
  const Progress& progress = console_->progress();
  for (const std::string& losses : {progress.SummarizeLoss(), progress.SummarizeEvaluation()}) {
    if (!losses.empty()) console_->ShowSummaryLine(losses);
  }
  for (const std::string& line : plan_.purpose.closing_lines) console_->ShowSummaryLine(line);
}

int JobRecord::Conclude(const JobOutcome& outcome) {
  static_cast<void>(run_directory_->Flush());  // the index of logs that are whole
  Verdict verdict;
  Status written;
  if (!outcome.ok()) {
    verdict = outcome.failure();
    verdict.exit_code = FinalStatus(verdict, plan_.flags.exit_codes);
    if (verdict.rank >= 0 && verdict.last_lines.empty()) {
      verdict.last_lines = run_directory_->ReadLastLines(verdict.generation, verdict.rank);
    }
    written = run_directory_->WriteVerdict(verdict);
  }
  // Not before: a disk that hangs must not keep those waiting who deal with the user's signals.
  const std::lock_guard lock(mutex_);
  console_->Finish();
  if (outcome.ok()) {
    if (plan_.purpose.trains) ShowSummary();
    return kExitOk;
  }
  if (!written.ok()) console_->ShowNotice("verdict.json is not written: " + written.message());
  console_->ShowVerdict(verdict, run_directory_->path().string());
  return verdict.exit_code;
}

}  // namespace ds::cli
