#pragma once

// FlatGradients: the gradients of one FlatParameters, from single parameters' gradients in the
// backward pass to the mean over ranks that the optimizer reads.
//
// Unsharded, they are summed over micro-batches in a whole flat buffer, which is reduced once, at
// the end of the step. Sharded, the buffer is there only while the unit's backward runs; then it is
// reduced into the shard, unless it is told to hold. Gradients arrive scaled so that their sum over
// micro-batches is the rank's mean. A parameter without a gradient counts as zeros.
//
// Nothing is held before the first gradient of a step and after Clear. That keeps gradients and the
// forward pass's activations, the two largest tenants of a step, from being in memory together.
//
// Threads: one thread at a time. EndMicroBatch and Reduce are collective.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/zero/buffer_pool.h"
#include "runtime/zero/context.h"
#include "runtime/zero/flat_layout.h"

namespace ds::zero {

// The first gradient of a step that was not finite when it arrived.
struct NonFiniteArrival {
  int parameter = 0;            // in the layout
  std::int64_t micro_step = 0;  // of the step, from 0
  std::int64_t element = 0;     // of the flattened parameter
  double value = 0.0;
};

// How gradients go between ranks.
struct GradientTravel {
  c10::ScalarType dtype = c10::kFloat;
  // Of tables (2-D) that unsharded travel by rows: the elements of a row, by parameter. Empty:
  // everything travels.
  std::vector<std::int64_t> row_widths = {};
};

class FlatGradients {
 public:
  // `layout` is borrowed.
  FlatGradients(const Context& context, BufferPool& pool, const FlatLayout& layout,
                GradientTravel travel);

  // Adds what one backward pass produced for parameter `i`. At most once per parameter and
  // backward.
  void Add(int i, const at::Tensor& gradient);

  // All gradients of this micro-batch have been added. With `hold`, sharded ones wait, whole, for
  // the next micro-batch without it, or Reduce.
  void EndMicroBatch(bool hold);
  // The step's last micro-batch has ended: after this the mean over ranks is there.
  void Reduce();
  // In its place: what is there stays this rank's own. Requires gradients that are not sharded.
  void KeepOwn();

  // This rank's shard of the mean. Requires Reduce.
  at::Tensor shard() const;
  // What the optimizer steps: the shard when its state is sharded, otherwise everything.
  at::Tensor for_optimizer() const;

  // On this rank, since Clear; on the CPU only: on a GPU every look would wait for the device.
  const std::optional<NonFiniteArrival>& first_non_finite() const { return non_finite_; }

  // By parameter: whether Add has been called for it on this rank since Clear.
  const std::vector<bool>& received_in_step() const { return received_in_step_; }

  void Clear();

 private:
  void LookAt(int parameter, const at::Tensor& gradient);

  // The buffer that Add writes to, there with zeros where no parameter lies.
  const at::Tensor& Buffer();
  at::Tensor OwnPart(const at::Tensor& whole) const;
  void ZeroWhatIsMissing();
  void ReduceBlock();
  void ReduceIntoShard(const at::Tensor& whole);
  void ReduceEverywhere(const at::Tensor& whole);
  // What context.reduction asks for around the sum over ranks, in place.
  comm::ReduceOp BeforeReduction(const at::Tensor& whole) const;
  void AfterReduction(const at::Tensor& reduced) const;

  const Context& context_;
  const FlatLayout& layout_;
  const GradientTravel travel_;
  std::unique_ptr<PooledTensor> block_;  // when sharded: this micro-batch's gradients
  BookedTensor whole_;                   // when not: the step's
  BookedTensor own_;                     // the reduced shard, where whole_ is not it
  std::vector<bool> received_;           // since the buffer came
  std::vector<bool> received_in_step_;   // since Clear
  std::int64_t micro_step_ = 0;          // since Clear
  std::optional<NonFiniteArrival> non_finite_;
};

}  // namespace ds::zero
