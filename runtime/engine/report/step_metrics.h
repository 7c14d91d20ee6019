#pragma once

// One finished optimizer step as metrics.jsonl says it: the fields, their names and their order.

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
  std::int64_t step = 0;    // finished optimizer steps, from 1, absolute over restarts and resumes
  double loss = 0.0;        // mean over all ranks and micro-batches
  double grad_norm = 0.0;   // global L2 norm before clipping
  double lr = 0.0;          // the rate that this update used
  double loss_scale = 1.0;  // 1 in fp32 and bf16
  bool skipped = false;     // no update: the gradient was not finite
  std::int64_t tokens = 0;  // of all ranks and micro-batches
  std::int64_t samples = 0;
  double step_seconds = 0.0;
  double data_seconds = 0.0;  // of those, in which the first rank has waited for its samples
};

// The look at other data behind a step.
struct EvaluationMetrics {
  double loss = 0.0;
  std::optional<double> accuracy = {};
  std::int64_t labels = 0;
  double seconds = 0.0;
};

// Holds what is told of one rank, the first.
struct RankMetrics {
  nlohmann::ordered_json communicated;  // by its groups in this step (comm/traffic.h)
  nlohmann::ordered_json memory;        // MakeMemoryReport
};

// {"step","loss","grad_norm","lr","loss_scale","skipped","tokens","samples","step_seconds",
//  "data_seconds","tokens_per_second","communicated","memory"}. Printed, its numbers read back as
//  the same doubles; what is not finite is null, because JSON has no word for it.
nlohmann::ordered_json ToJson(const StepMetrics& metrics, const RankMetrics& rank);

// Adds "phase_seconds", where the phases of the step were timed (wall_clock_breakdown).
struct PhaseMetrics {
  double forward = 0.0, backward = 0.0, backward_inner = 0.0, backward_allreduce = 0.0, step = 0.0;
};
void AddPhases(const PhaseMetrics& seconds, nlohmann::ordered_json* metrics);

// Adds what a step's object has besides where data was evaluated behind it: "eval_loss",
// "eval_perplexity" (e to the loss), "eval_accuracy" (of tokens, where it is known), "eval_tokens"
// (labels that counted), "eval_seconds".
void AddEvaluation(const EvaluationMetrics& evaluation, nlohmann::ordered_json* metrics);

// Adds what a step's object has besides where the model has experts: "expert_imbalance", of each
// layer with experts the routes of the fullest one over their mean (1: all are as full), and
// "expert_routes", of each of these layers the routes of every expert, unless they are more than
// kMostExpertRoutes numbers.
inline constexpr std::size_t kMostExpertRoutes = 4096;
void AddExpertLoad(const std::vector<std::vector<std::int64_t>>& routes,
                   nlohmann::ordered_json* metrics);

// Finds what came to the experts of each of so many ranks that have them between them, over an even
// share, by rank and layer. Empty without routes, and where the ranks do not divide the experts.
std::vector<std::vector<double>> FindExpertLoads(
    const std::vector<std::vector<std::int64_t>>& routes, int ranks);

// The process as the kernel sees it: {"resident_bytes","peak_resident_bytes"}; empty where it does
// not say. Pages that are shared with other processes count in full.
nlohmann::ordered_json ReadProcessMemory();

// The "memory" of a rank: what the ledger holds by use and tier, all tensors of its device, and the
// process: {"parameters":{"host":{"bytes","peak"}},...,"tensors":{"bytes","peak"},"resident_bytes",
// "peak_resident_bytes"}. Without "tensors" where nobody measures them (null).
nlohmann::ordered_json MakeMemoryReport(const device::MemoryLedger& ledger,
                                        const device::ActivationMeter* meter = nullptr);

}  // namespace ds::telemetry
