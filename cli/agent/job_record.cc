#include "cli/agent/job_record.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/job/final_status.h"
#include "cli/job/verdict/make_verdict.h"
#include "cli/job/verdict/verdict_message.h"
#include "runtime/base/clock.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/base/shell_quote.h"
#include "runtime/checkpoint_format/latest.h"

namespace ds::cli {
namespace {

// Describes the steps that a training has lost by its end, and how to continue it. `last_step` is
// the last finished step. Returns "" if there is nothing to lose or to continue.
std::string DescribeResume(const RunDirectory& run, std::optional<std::int64_t> last_step) {
  const auto latest = checkpoint::ReadLatest(run.checkpoints());
  if (!latest.ok()) return "";
  if (!latest->has_value()) {
    if (!last_step.has_value()) return "";
    return "the run has no checkpoint: all " + std::to_string(*last_step) +
           " steps are lost, and `dsrun resume` cannot continue it; --save_every N saves a "
           "checkpoint every N steps";
  }
  const std::string saved = std::to_string((*latest)->step);
  const std::string command = "`dsrun resume " + ShellQuote(ShortenPath(run.path())) +
                              "` continues after step " + saved + ", the newest checkpoint";
  if (last_step.value_or(0) <= (*latest)->step) return command;
  return command + "; the steps after it, up to " + std::to_string(*last_step) + ", are lost";
}

// True for failures that a training may continue after. The other causes need a correction first,
// which their hints name.
bool MayContinue(Cause cause) {
  return cause != Cause::kConfig && cause != Cause::kPreflight && cause != Cause::kCheckpoint;
}

}  // namespace

void JobRecord::ShowNotices() {
  for (const std::string& notice : plan_.notices) OnNotice(notice);
  if (!plan_.spares.empty() && plan_.flags.max_restarts == 0) {
    OnNotice(
        "spare hosts are used at the start only: a host that is lost later ends the job, because "
        "--max_restarts is not given");
  }
}

void JobRecord::OnPrepared(const std::string& host, const v1::PrepareResponse& response) {
  for (const v1::Finding& finding : response.findings()) {
    if (finding.level() != v1::Finding::WARN) continue;
    OnNotice("host " + host + ": " + finding.message() +
             (finding.hint().empty() ? "" : "; " + finding.hint()));
  }
  const bool may_be_surprised = plan_.purpose.built_in && plan_.flags.device == Device::kAuto;
  if (may_be_surprised && !response.ranks_on_gpus()) {
    OnNotice("host " + host + " has no GPU: its ranks run on CPU");
  }
}

Status JobRecord::OnEvent(const HostEvent& event) {
  {
    const std::lock_guard lock(mutex_);
    if (given_up_) return OkStatus();
  }
  std::shared_ptr<const v1::Event> kept =
      event.batch == nullptr ? std::make_shared<const v1::Event>(event.event)
                             : std::shared_ptr<const v1::Event>(event.batch, &event.event);
  writer_.Put([this, kept = std::move(kept), host = event.host, generation = event.generation] {
    Write({host, generation, *kept});
  });
  const std::lock_guard lock(mutex_);
  return failed_;
}

void JobRecord::Write(const HostEvent& event) {
  Status written;
  {
    const std::lock_guard lock(mutex_);
    if (!failed_.ok()) return;
  }
  const bool is_new = ledger_->OnEvent(event);
  if (is_new) written = run_directory_->Append(event);
  {
    const std::lock_guard lock(mutex_);
    if (!written.ok()) {
      failed_ = written;
      generation_ = event.generation;
      return;
    }
    status_.OnEvent(event, Clock::System().Now());
  }
  if (!is_new) return;
  v1::FromAgent message;
  message.mutable_event()->set_host(event.host);
  message.mutable_event()->set_generation(event.generation);
  *message.mutable_event()->mutable_event() = event.event;
  fronts_->Publish(message);
  ledger_->OnWritten();
}

void JobRecord::Say(v1::JobText::Kind kind, const std::string& text) {
  v1::FromAgent message;
  message.mutable_text()->set_kind(kind);
  message.mutable_text()->set_text(text);
  fronts_->Publish(message);
}

void JobRecord::OnNotice(const std::string& text) { Say(v1::JobText::NOTICE, text); }

void JobRecord::ShowWarning(const std::string& text) { Say(v1::JobText::WARNING, text); }

void JobRecord::OnTakenOver() {
  const std::lock_guard lock(mutex_);
  status_.OnTakenOver();
}

void JobRecord::OnStop() {
  const std::lock_guard lock(mutex_);
  status_.OnStop();
}

std::string JobRecord::Describe() const {
  const std::lock_guard lock(mutex_);
  return status_.ToJson().dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void JobRecord::OnQuiet() {
  v1::FromAgent message;
  message.mutable_quiet();
  fronts_->Publish(message);
}

std::vector<std::string> JobRecord::Summarize() const {
  if (!plan_.purpose.trains) return {};
  const std::string path = ShortenPath(run_directory_->path());
  std::vector<std::string> lines = {
      "done; the run directory is " + path, "  metrics      " + path + "/metrics.jsonl",
      "  config       " + path + "/config.resolved.json", "  logs         " + path + "/logs",
      "  checkpoints  " + ShortenPath(run_directory_->checkpoints())};
  if (const std::filesystem::path& model = plan_.purpose.model; !model.empty()) {
    lines.push_back("  model        " + ShortenPath(model));
  }
  const Progress& progress = status_.progress();
  for (const std::string& losses : {progress.SummarizeLoss(), progress.SummarizeEvaluation()}) {
    if (!losses.empty()) lines.push_back(losses);
  }
  lines.insert(lines.end(), plan_.purpose.closing_lines.begin(), plan_.purpose.closing_lines.end());
  return lines;
}

void JobRecord::End() {
  bool given_up = false;
  {
    const std::lock_guard lock(mutex_);
    given_up = given_up_;
  }
  if (!given_up) writer_.End();
}

void JobRecord::GiveUp() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(given_up_, true)) return;  // the verdict, put later, gets its moment
  }
  run_directory_->disk().GiveUp();
  writer_.GiveUp();
}

Verdict JobRecord::WriteVerdict(const Verdict& verdict) {
  struct Written {
    Verdict verdict;
    Status status;
  };
  const auto written = std::make_shared<Written>(Written{.verdict = verdict, .status = {}});
  const bool may_continue = plan_.purpose.trains && MayContinue(verdict.cause);
  std::optional<std::int64_t> last_step;
  {
    const std::lock_guard lock(mutex_);
    last_step = status_.progress().step();
  }
  const auto put_and_flush = [&] {
    writer_.Put([this, written, may_continue, last_step] {
      Verdict& full = written->verdict;
      const std::string resume = may_continue ? DescribeResume(*run_directory_, last_step) : "";
      if (!resume.empty()) AddHint(resume, &full);
      if (full.rank >= 0 && full.last_lines.empty()) {
        full.last_lines = run_directory_->ReadLastLines(full.generation, full.rank);
      }
      written->status = run_directory_->WriteVerdict(full);
    });
    return writer_.Flush();
  };
  bool done = put_and_flush();
  // GiveUp drops tasks once, and nobody holds dropped ones: a healthy directory gets this one now.
  if (!done && written.use_count() == 1) done = put_and_flush();
  if (!done) {
    OnNotice("verdict.json is not written: the run directory does not accept writes");
    return verdict;
  }
  if (!written->status.ok()) OnNotice("verdict.json is not written: " + written->status.message());
  return written->verdict;
}

int JobRecord::Conclude(JobOutcome outcome) {
  const bool is_kept = writer_.Flush();
  Verdict verdict;
  {
    const std::lock_guard lock(mutex_);
    if (outcome.ok() && !is_kept) {
      failed_ = DeadlineExceededError("it takes nothing");
    }
    if (outcome.ok() && !failed_.ok()) outcome = MakeRunDirectoryVerdict(failed_, generation_);
  }
  if (!outcome.ok()) {
    verdict = outcome.failure();
    verdict.exit_code = FinalStatus(verdict, plan_.flags.exit_codes);
    verdict = WriteVerdict(verdict);
    outcome = verdict;
  }
  v1::JobEnded ended;
  {
    const std::lock_guard lock(mutex_);
    status_.OnEnd(outcome);
    if (outcome.ok()) {
      for (const std::string& line : Summarize()) ended.add_summary(line);
    } else {
      ended.set_exit_code(verdict.exit_code);
      *ended.mutable_verdict() = MakeVerdictMessage(verdict);
    }
  }
  fronts_->PublishEnd(ended);
  return ended.exit_code();
}

}  // namespace ds::cli
