#include "runtime/engine/report/step_metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>

#include "runtime/base/files.h"
#include "runtime/device/activation_meter.h"
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
      {"data_seconds", metrics.data_seconds},
      {"tokens_per_second", seconds > 0.0 ? static_cast<double>(metrics.tokens) / seconds : 0.0},
      {"communicated", rank.communicated},
      {"memory", rank.memory}};
}

void AddPhases(const PhaseMetrics& seconds, nlohmann::ordered_json* metrics) {
  (*metrics)["phase_seconds"] = {{"forward", seconds.forward},
                                 {"backward", seconds.backward},
                                 {"backward_inner", seconds.backward_inner},
                                 {"backward_allreduce", seconds.backward_allreduce},
                                 {"step", seconds.step}};
}

void AddEvaluation(const EvaluationMetrics& evaluation, nlohmann::ordered_json* metrics) {
  (*metrics)["eval_loss"] = evaluation.loss;
  (*metrics)["eval_perplexity"] = std::exp(evaluation.loss);
  if (evaluation.accuracy) (*metrics)["eval_accuracy"] = *evaluation.accuracy;
  (*metrics)["eval_tokens"] = evaluation.labels;
  (*metrics)["eval_seconds"] = evaluation.seconds;
}

void AddExpertLoad(const std::vector<std::vector<std::int64_t>>& routes,
                   nlohmann::ordered_json* metrics) {
  std::size_t numbers = 0;
  nlohmann::ordered_json imbalance = nlohmann::ordered_json::array();
  for (const std::vector<std::int64_t>& layer : routes) {
    numbers += layer.size();
    const auto all = std::accumulate(layer.begin(), layer.end(), std::int64_t{0});
    const std::int64_t most = layer.empty() ? 0 : *std::max_element(layer.begin(), layer.end());
    const double mean = static_cast<double>(all) / static_cast<double>(layer.size());
    imbalance.push_back(all == 0 ? 1.0 : static_cast<double>(most) / mean);
  }
  (*metrics)["expert_imbalance"] = std::move(imbalance);
  if (numbers <= kMostExpertRoutes) (*metrics)["expert_routes"] = routes;
}

std::vector<std::vector<double>> FindExpertLoads(
    const std::vector<std::vector<std::int64_t>>& routes, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  if (routes.empty() || routes.front().size() % count != 0) return {};
  const auto own = static_cast<std::ptrdiff_t>(routes.front().size() / count);
  std::vector<std::vector<double>> loads(count);
  for (const std::vector<std::int64_t>& layer : routes) {
    const auto all = std::accumulate(layer.begin(), layer.end(), std::int64_t{0});
    auto first = layer.begin();
    for (std::vector<double>& rank : loads) {
      const auto came = std::accumulate(first, first + own, std::int64_t{0});
      rank.push_back(all == 0 ? 1.0 : static_cast<double>(came) * ranks / static_cast<double>(all));
      first += own;
    }
  }
  return loads;
}

nlohmann::ordered_json ReadProcessMemory() {
  // Takes some 20 microseconds.
  const StatusOr<std::string> text = ReadFile("/proc/self/status");
  std::istringstream lines(text.ok() ? *text : "");
  nlohmann::ordered_json process = nlohmann::ordered_json::object();
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string key;
    std::int64_t kibibytes = 0;
    if (!(fields >> key >> kibibytes)) continue;
    if (key == "VmRSS:") process["resident_bytes"] = kibibytes * 1024;
    if (key == "VmHWM:") process["peak_resident_bytes"] = kibibytes * 1024;
  }
  nlohmann::ordered_json ordered = nlohmann::ordered_json::object();
  for (const char* what : {"resident_bytes", "peak_resident_bytes"}) {
    if (process.contains(what)) ordered[what] = process[what];
  }
  return ordered;
}

nlohmann::ordered_json MakeMemoryReport(const device::MemoryLedger& ledger,
                                        const device::ActivationMeter* meter) {
  nlohmann::ordered_json report = ledger.ToJson();
  if (meter != nullptr) {
    const device::HeldBytes tensors = meter->allocated();
    report["tensors"] = {{"bytes", tensors.bytes}, {"peak", tensors.peak}};
  }
  report.update(ReadProcessMemory());
  return report;
}

}  // namespace ds::telemetry
