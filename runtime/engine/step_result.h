#pragma once

// StepResult is the outcome of one optimizer step, with the policy for gradients that are not
// finite. Evaluation is the outcome of an evaluation on data that is not trained on.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ds::engine {

// Decides how to handle a step with a gradient that is not finite. With dynamic loss scaling in
// fp16, overflows are expected while the scale adapts: the step is skipped under every policy. The
// policy applies once the scale cannot shrink further.
enum class NonFinitePolicy {
  kAsConfigured,  // skip in fp16, and in bf16 with check_grad_overflow; otherwise stop
  kSkip,          // no update; continue with the next batch
  kStop,          // an error
  kRewind,        // no update; StepResult::rewind asks the loop to go back to a checkpoint
};

struct Evaluation {
  double loss = 0.0;               // mean over all ranks' labels that are not ignored
  std::optional<double> accuracy;  // share of these that the model ranks first, if known
  std::int64_t labels = 0;         // these; micro-batches if the model counts no labels
  double seconds = 0.0;
};

// The facts of one optimizer step for metrics.jsonl; the same on every rank.
struct StepResult {
  // False: more micro-batches of the step are to come, and no other field is set.
  bool boundary = false;
  // The gradient was not finite and the parameters are unchanged.
  bool skipped = false;
  std::string non_finite;  // see zero/optimizer/gradient_checks.h; empty unless skipped
  std::string overflow;    // change of fp16's loss scale, or ""
  bool rewind = false;     // NonFinitePolicy::kRewind applies
  std::int64_t step = 0;   // finished steps including this one, skipped ones too
  // Mean over all ranks and micro-batches. With scale_wrt_gas false: mean over ranks of the sum
  // over micro-batches.
  double loss = 0.0;
  double grad_norm = 0.0;   // global L2 norm before clipping
  double lr = 0.0;          // the rate that this update used
  double loss_scale = 1.0;  // of this step; 1 in fp32 and bf16
  std::int64_t tokens = 0;  // labels of all ranks and micro-batches
  std::int64_t samples = 0;
  // Number of routes to each expert of each layer with experts, over all ranks and micro-batches.
  // Empty without experts, and if the layers are on several pipeline stages.
  std::vector<std::vector<std::int64_t>> expert_routes;
  std::optional<Evaluation> evaluation;  // by the training loop, after the step
};

}  // namespace ds::engine
