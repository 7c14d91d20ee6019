#include "runtime/telemetry/step_metrics.h"

#include <nlohmann/json.hpp>

#include "runtime/device/memory_ledger.h"
#include "runtime/device/process_memory.h"

namespace ds::telemetry {

nlohmann::ordered_json ToJson(const StepMetrics& metrics, const nlohmann::ordered_json& memory) {
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
      {"memory", memory}};
}

nlohmann::ordered_json MakeMemoryReport(const device::MemoryLedger& ledger) {
  nlohmann::ordered_json report = ledger.ToJson();
  if (const auto process = device::ReadProcessMemory(); process.ok()) {
    report["resident_bytes"] = process->resident_bytes;
    report["peak_resident_bytes"] = process->peak_resident_bytes;
  }
  return report;
}

}  // namespace ds::telemetry
