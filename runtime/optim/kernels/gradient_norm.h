#pragma once

// SumOfSquares and SquareSum compute the square of the gradient norm from flat shards. ClipFactor
// and DecideUpdate compute the factor that clips gradients by the norm.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

namespace ds::optim {

// Returns the sum of the squares of `flat` (1-D, contiguous, fp32, bf16 or fp16), in double: a
// shard of any size keeps its precision, and no finite gradient overflows. The order of addition
// does not depend on the number of threads.
double SumOfSquares(const at::Tensor& flat);

// SquareSum computes the weighted sum of the squares of slices on a device other than the CPU.
// One multi-tensor kernel computes their norms. The sum stays on the device, without
// synchronization.
class SquareSum {
 public:
  // Adds values with the same requirements. They are referenced until Measure or Sum.
  void Add(at::Tensor values, double weight);
  // Adds up the squares of the values added so far and releases them. They may change afterwards.
  void Measure();
  // Returns the sum over all slices of weight * sum of squares, a double scalar on their device;
  // undefined without slices. Resets the sum.
  at::Tensor Sum();

 private:
  std::map<double, std::vector<at::Tensor>> slices_;  // by their weight
  at::Tensor sum_;
};

// Returns the sum of the squares of `count` values, on the calling thread only.
double SumOfSquares(const float* values, std::int64_t count);

// Returns the factor that limits the gradient norm to `max_norm`: min(1, max_norm / (norm + 1e-6)),
// PyTorch's rule. `max_norm` 0 turns clipping off.
double ClipFactor(double norm, double max_norm);

// Computes an UpdateDecision (flat_ops.h) on the device of `squares`, without synchronizing with
// the host: an fp32 tensor with two elements. `squares` is a double scalar, the sum of the squares
// of gradients that are `unit` times too large (loss scaling). The scale clips and divides by
// `unit`; the update applies if the sum is finite. Computed in double and rounded once, so the
// scale has the same bits as with ClipFactor if the device has IEEE division.
at::Tensor DecideUpdate(const at::Tensor& squares, double unit, double max_norm);

}  // namespace ds::optim
