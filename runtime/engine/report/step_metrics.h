#pragma once

// StepMetrics is one finished optimizer step as written to metrics.jsonl: the fields, their names
// and their order.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

namespace ds::device {
class ActivationMeter;
class MemoryLedger;
}  // namespace ds::device

namespace ds::telemetry {

struct StepMetrics {
  std::int64_t step = 0;    // finished optimizer steps, from 1, over restarts and resumes
  double loss = 0.0;        // mean over all ranks and micro-batches
  double grad_norm = 0.0;   // global L2 norm before clipping
  double lr = 0.0;          // the rate that this update used
  double loss_scale = 1.0;  // 1 in fp32 and bf16
  bool skipped = false;     // no update: the gradient was not finite
  std::int64_t tokens = 0;  // of all ranks and micro-batches
  std::int64_t samples = 0;
  double step_seconds = 0.0;
  double data_seconds = 0.0;  // the part of step_seconds that rank 0 waited for its samples
};

// The evaluation after a step.
struct EvaluationMetrics {
  double loss = 0.0;
  std::optional<double> accuracy = {};
  std::int64_t labels = 0;
  double seconds = 0.0;
};

// Metrics of one rank only, rank 0.
struct RankMetrics {
  nlohmann::ordered_json communicated;  // in this step, by communicator (comm/traffic.h)
  nlohmann::ordered_json memory;        // MakeMemoryReport
};

// Returns {"step","loss","grad_norm","lr","loss_scale","skipped","tokens","samples","step_seconds",
// "data_seconds","tokens_per_second","communicated","memory"}. Printed numbers read back as the
// same doubles. Numbers that are not finite are null, because JSON cannot represent them.
nlohmann::ordered_json ToJson(const StepMetrics& metrics, const RankMetrics& rank);

// Adds "phase_seconds", if the phases of the step were timed (wall_clock_breakdown).
struct PhaseMetrics {
  double forward = 0.0, backward = 0.0, backward_inner = 0.0, backward_allreduce = 0.0, step = 0.0;
};
void AddPhases(const PhaseMetrics& seconds, nlohmann::ordered_json* metrics);

// Adds the fields of an evaluation after the step: "eval_loss", "eval_perplexity" (e to the loss),
// "eval_accuracy" (of tokens, if known), "eval_tokens" (labels that counted), "eval_seconds".
void AddEvaluation(const EvaluationMetrics& evaluation, nlohmann::ordered_json* metrics);

// Adds the fields of a model with experts. "expert_imbalance" has for each layer with experts the
// routes of its fullest expert over the mean (1: balanced). "expert_routes" has for each of these
// layers the routes of every expert; omitted if it has more than kMostExpertRoutes numbers.
inline constexpr std::size_t kMostExpertRoutes = 4096;
void AddExpertLoad(const std::vector<std::vector<std::int64_t>>& routes,
                   nlohmann::ordered_json* metrics);

// Returns, by rank and layer, the routes to the experts of each of `ranks` ranks that share the
// experts, relative to an even share. Empty without routes, and if `ranks` does not divide the
// experts.
std::vector<std::vector<double>> FindExpertLoads(
    const std::vector<std::vector<std::int64_t>>& routes, int ranks);

// Returns the process's memory as the kernel reports it: {"resident_bytes","peak_resident_bytes"};
// empty if unavailable. Pages shared with other processes count in full.
nlohmann::ordered_json ReadProcessMemory();

// Returns the "memory" of a rank: the ledger's bytes by use and tier, all tensors of its device,
// and the process: {"parameters":{"host":{"bytes","peak"}},...,"tensors":{"bytes","peak"},
// "resident_bytes","peak_resident_bytes"}. Without "tensors" if `meter` is null.
nlohmann::ordered_json MakeMemoryReport(const device::MemoryLedger& ledger,
                                        const device::ActivationMeter* meter = nullptr);

}  // namespace ds::telemetry
