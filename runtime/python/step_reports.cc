#include "runtime/python/step_reports.h"

#include <utility>

#include "runtime/engine/report/step_metrics.h"
#include "runtime/python/process.h"
#include "runtime/rank/step_report.h"

namespace ds::python {

StepReports::~StepReports() {
  if (Process::IsJoined()) Process::Get().StopReporting(this);
}

void StepReports::BeginForward(bool evaluates) {
  const Time now = std::chrono::steady_clock::now();
  if (activity_ == Activity::kNothing) {
    if (evaluates) return;
    begin_ = now;
    traffic_ = Process::Get().world().traffic();
  } else if (activity_ == Activity::kWaiting) {
    (evaluates ? evaluated_ : waited_) += now - since_;
  } else if (activity_ == Activity::kEvaluating) {  // its pass has thrown
    evaluated_ += now - since_;
  }
  if (evaluates && activity_ != Activity::kEvaluating) interrupted_ = activity_;
  activity_ = evaluates ? Activity::kEvaluating : Activity::kWorking;
  since_ = now;
}

void StepReports::EndForward() {
  if (activity_ != Activity::kEvaluating) return;
  const Time now = std::chrono::steady_clock::now();
  evaluated_ += now - since_;
  activity_ = interrupted_;
  since_ = now;
}

void StepReports::OnStep(Engine& engine, const StepResult& result) {
  const Time now = std::chrono::steady_clock::now();
  activity_ = Activity::kWaiting;
  since_ = now;
  if (!result.boundary) return;
  Process& process = Process::Get();
  if (process.IsReporter(this) && process.reporter().link() != nullptr) Report(engine, result, now);
  begin_ = now;
  waited_ = evaluated_ = {};
  traffic_ = engine.world().traffic();
}

void StepReports::Report(Engine& engine, const StepResult& result, Time now) {
  Process& process = Process::Get();
  nlohmann::ordered_json memory = telemetry::MakeMemoryReport(engine.ledger());
  process.reporter().ReportBeacon(result.step, memory);
  if (process.identity().rank != 0) return;
  if (result.skipped) process.reporter().ReportNotice(rank::DescribeSkip(result));
  const comm::Traffic communicated = comm::Since(traffic_, engine.world().traffic());
  const std::chrono::duration<double> duration = now - begin_ - evaluated_;
  const rank::StepSeconds seconds{.step = duration.count(), .data = waited_};
  nlohmann::ordered_json report =
      rank::MakeStepReport(engine, result, seconds, communicated, std::move(memory));
  if (evaluated_.count() > 0.0) report["eval_seconds"] = evaluated_.count();
  if (result.tokens == 0) report.erase("tokens_per_second");  // the module's labels are unknown
  process.reporter().ReportStep(report);
}

}  // namespace ds::python
