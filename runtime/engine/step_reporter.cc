#include "runtime/engine/step_reporter.h"

namespace ds::engine {

Status StepReporter::WriteMonitors(const config::DsConfig& config, const StepResult& result,
                                   std::int64_t samples) const {
  if (monitors.empty()) return OkStatus();
  const std::vector<MonitorEvent> events = ListMonitorEvents(config, result, phases.latest());
  for (const auto& monitor : monitors) DS_RETURN_IF_ERROR(monitor->Write(events, samples));
  return OkStatus();
}

}  // namespace ds::engine
