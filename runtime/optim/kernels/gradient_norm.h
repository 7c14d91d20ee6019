#pragma once

// The global gradient norm from flat shards, and the factor that clips to it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

namespace ds::optim {

// Sum of the squares of `flat` (1-D, contiguous, fp32, bf16 or fp16), in double: a shard of any
// size keeps its precision and no finite gradient overflows. One order of addition whatever the
// thread count.
double SumOfSquares(const at::Tensor& flat);

// SquaresOfParts adds up the squares of parts on a device that is not the CPU, weighted. Their
// norms are one kernel (a multi-tensor one), and the sum stays on the device: nobody waits for it.
class SquaresOfParts {
 public:
  // `values` as above. Keeps them until Measure or Sum.
  void Add(at::Tensor values, double weight);
  // Adds up what it keeps, and lets it go: the values may change behind that.
  void Measure();
  // The sum over all parts of weight * sum of squares, a double scalar on their device; undefined
  // where there were none. Forgets it.
  at::Tensor Sum();

 private:
  std::map<double, std::vector<at::Tensor>> parts_;  // by their weight
  at::Tensor sum_;
};

// The same of `count` values, by the calling thread alone.
double SumOfSquares(const float* values, std::int64_t count);

// The factor by which gradients are multiplied so that their norm is at most `max_norm`: min(1,
// max_norm / (norm + 1e-6)), PyTorch's rule. `max_norm` 0 switches clipping off.
double ClipFactor(double norm, double max_norm);

// The same where the norm is, without a word to the host: an UpdateDecision (flat_ops.h) as an fp32
// tensor of two, on the device of `squares`, a double scalar: the sum of the squares of gradients
// that are `unit` times too large. Its scale clips and divides by the unit; it applies where the
// sum is finite. In double and rounded once: ClipFactor's bits where the device divides as IEEE
// says.
at::Tensor DecideUpdate(const at::Tensor& squares, double unit, double max_norm);

}  // namespace ds::optim
