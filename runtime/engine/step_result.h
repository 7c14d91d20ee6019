#pragma once

// StepResult: the outcome of one optimizer step, and the policy for gradients that are not finite.
// Evaluation: the outcome of a look at data that is not learnt.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ds::engine {

// Decides what becomes of a step whose gradient is not finite. With dynamic loss scaling in fp16 an
// overflow is how the scale finds its size: the step is skipped whatever the policy, which speaks
// up when the scale cannot shrink any further.
enum class NonFinitePolicy {
  kAsConfigured,  // skip in fp16, and in bf16 with check_grad_overflow; otherwise stop
  kSkip,          // no update, and on with the next batch
  kStop,          // an error
  kRewind,        // no update; StepResult::rewind asks the loop to go back to a checkpoint
};

struct Evaluation {
  double loss = 0.0;               // mean over the labels of all ranks that are not ignored
  std::optional<double> accuracy;  // the share of them that the model finds most likely, if it says
  std::int64_t labels = 0;         // those; of a model that does not count them, the micro-batches
  double seconds = 0.0;
};

// The facts of one optimizer step that metrics.jsonl holds; the same on every rank.
struct StepResult {
  // False: the step's last micro-batch is still to come and nothing below is set.
  bool boundary = false;
  // The gradient was not finite and the parameters are as before.
  bool skipped = false;
  std::string
      non_finite;  // which gradient, where: zero/optimizer/gradient_checks.h; empty unless skipped
  std::string overflow;   // what fp16's loss scale became of it, or ""
  bool rewind = false;    // NonFinitePolicy::kRewind has been met
  std::int64_t step = 0;  // finished steps including this one, skipped ones too
  // Mean over all ranks and micro-batches; of what backward took without scale_wrt_gas, the mean
  // over ranks of the sum.
  double loss = 0.0;
  double grad_norm = 0.0;   // global L2 norm before clipping
  double lr = 0.0;          // the rate that this update used
  double loss_scale = 1.0;  // of this step; 1 in fp32 and bf16
  std::int64_t tokens = 0;  // labels of all ranks and micro-batches
  std::int64_t samples = 0;
  // Each layer with experts has here how many routes each of them got, of all ranks and
  // micro-batches. Empty without experts, and where stages of a pipeline have the layers.
  std::vector<std::vector<std::int64_t>> expert_routes;
  std::optional<Evaluation> evaluation;  // by the training loop, of the parameters after the step
};

}  // namespace ds::engine
