#include "runtime/python/step_reports.h"

#include <utility>

#include "runtime/engine/report/step_metrics.h"
#include "runtime/python/process.h"
#include "runtime/rank/step_report.h"

namespace ds::python {

StepReports::~StepReports() {
  if (Process::IsJoined()) Process::Get().StopReporting(this);
}

void StepReports::EndWait() {
  const Time now = std::chrono::steady_clock::now();
  if (begin_ == Time()) {
    begin_ = now;
    traffic_ = Process::Get().world().traffic();
  } else if (waits_since_ != Time()) {
    waited_ += now - waits_since_;
  }
  waits_since_ = Time();
}

void StepReports::OnStep(Engine& engine, const StepResult& result) {
  const Time now = std::chrono::steady_clock::now();
  waits_since_ = now;
  if (!result.boundary) return;
  Process& process = Process::Get();
  if (process.IsReporter(this) && process.reporter().link() != nullptr) Report(engine, result, now);
  begin_ = now;
  waited_ = {};
  traffic_ = engine.world().traffic();
}

void StepReports::Report(Engine& engine, const StepResult& result, Time now) {
  Process& process = Process::Get();
  nlohmann::ordered_json memory = telemetry::MakeMemoryReport(engine.ledger());
  process.reporter().ReportBeacon(result.step, memory);
  if (process.identity().rank != 0) return;
  if (result.skipped) process.reporter().ReportNotice(rank::DescribeSkip(result));
  const comm::Traffic communicated = comm::Since(traffic_, engine.world().traffic());
  const rank::StepSeconds seconds{.step = std::chrono::duration<double>(now - begin_).count(),
                                  .data = waited_};
  nlohmann::ordered_json report =
      rank::MakeStepReport(engine, result, seconds, communicated, std::move(memory));
  if (result.tokens == 0) report.erase("tokens_per_second");  // the module's labels are unknown
  process.reporter().ReportStep(report);
}

}  // namespace ds::python
