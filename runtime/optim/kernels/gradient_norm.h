#pragma once

// The global gradient norm from flat shards, and the factor that clips to it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ds::optim {

// Sum of the squares of `flat` (1-D, contiguous, fp32, bf16 or fp16), in double: a shard of any
// size keeps its precision and no finite gradient overflows. One order of addition whatever the
// thread count.
double SumOfSquares(const at::Tensor& flat);

// SquaresOfParts adds up the squares of parts on a device that is not the CPU, weighted. Their
// norms are one kernel (a multi-tensor one) and the sum one number, for which the host waits once.
class SquaresOfParts {
 public:
  // `values` as above. Keeps them until Sum.
  void Add(at::Tensor values, double weight);
  // The sum over all parts of weight * sum of squares, in double. Waits for the device; forgets the
  // parts.
  double Sum();

 private:
  std::vector<at::Tensor> parts_;
  std::vector<double> weights_;
};

// The same of `count` values, by the calling thread alone.
double SumOfSquares(const float* values, std::int64_t count);

// The factor by which gradients are multiplied so that their norm is at most `max_norm`: min(1,
// max_norm / (norm + 1e-6)), PyTorch's rule. `max_norm` 0 switches clipping off.
double ClipFactor(double norm, double max_norm);

}  // namespace ds::optim
