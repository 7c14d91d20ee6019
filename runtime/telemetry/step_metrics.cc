#include "runtime/telemetry/step_metrics.h"

#include <sstream>
#include <string>

#include "runtime/base/files.h"
#include "runtime/device/memory_ledger.h"

namespace ds::telemetry {

nlohmann::ordered_json ToJson(const StepMetrics& metrics, const RankMetrics& rank) {
  const double seconds = metrics.step_seconds;
  return {
      {"step", metrics.step},
      {"loss", metrics.loss},
      {"grad_norm", metrics.grad_norm},
      {"lr", metrics.lr},
      {"loss_scale", metrics.loss_scale},
      {"skipped", metrics.skipped},
      {"tokens", metrics.tokens},
      {"samples", metrics.samples},
      {"step_seconds", seconds},
      {"tokens_per_second", seconds > 0.0 ? static_cast<double>(metrics.tokens) / seconds : 0.0},
      {"communicated", rank.communicated},
      {"memory", rank.memory}};
}

nlohmann::ordered_json MakeMemoryReport(const device::MemoryLedger& ledger) {
  nlohmann::ordered_json report = ledger.ToJson();
  // Some 20 microseconds. Pages that are shared with other processes count in full.
  const StatusOr<std::string> text = ReadFile("/proc/self/status");
  std::istringstream lines(text.ok() ? *text : "");
  nlohmann::ordered_json process;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string key;
    std::int64_t kibibytes = 0;
    if (!(fields >> key >> kibibytes)) continue;
    if (key == "VmRSS:") process["resident_bytes"] = kibibytes * 1024;
    if (key == "VmHWM:") process["peak_resident_bytes"] = kibibytes * 1024;
  }
  for (const char* what : {"resident_bytes", "peak_resident_bytes"}) {
    if (process.contains(what)) report[what] = process[what];
  }
  return report;
}

}  // namespace ds::telemetry
