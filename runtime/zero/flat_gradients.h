#pragma once

// FlatGradients: the gradients of one FlatParameters, from the arrival of each parameter's gradient
// in the backward pass to the mean over ranks that the optimizer reads.
//
// Unsharded gradients are summed over micro-batches in a full flat buffer, which is reduced once,
// at the end of the step. Sharded gradients have the buffer only while the unit's backward runs; it
// is then reduced into the shard. Exception: in a window (plan/zero/step_windows.h) the buffer is
// held, and sums over micro-batches have the gradients' own dtype. Gradients arrive scaled so that
// their sum over micro-batches is the rank's mean. A parameter without a gradient counts as zeros.
//
// No memory is held before the first gradient of a step and after Clear. Gradients and forward
// activations, the largest users of memory in a step, therefore do not coexist. EndMicroBatch may
// return while its reduction is still running; every method that needs the result waits for it.
// Threads: one thread at a time. EndMicroBatch and Reduce are collective.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/autograd/put_gradient.h"
#include "runtime/checkpoint/tensor_source.h"
#include "runtime/plan/zero/flat_layout.h"
#include "runtime/zero/exchange/quantized_reduction.h"
#include "runtime/zero/storage/buffer_pool.h"
#include "runtime/zero/storage/context.h"
#include "runtime/zero/storage/store.h"

namespace ds::zero {

// The first checked gradient of a step that was not finite when it arrived.
struct NonFiniteArrival {
  int parameter = 0;            // index in the layout
  std::int64_t micro_step = 0;  // in the step, from 0
  std::int64_t element = 0;     // in the flattened parameter
  double value = 0.0;
};

// The form in which gradients are sent between ranks.
struct GradientTravel {
  c10::ScalarType dtype = c10::kFloat;
  std::string tag = {};  // of the collectives
  // The row width in elements of each table (2-D) whose unsharded gradient is reduced sparsely, row
  // by row. Empty: the full gradient is reduced.
  std::vector<std::int64_t> row_widths = {};
  bool rounded = false;  // quantized if Context::quantized_gradients is set
};

enum class MicroBatchEnd {
  kWait,    // gradients stay unreduced, for the next micro-batch or Reduce
  kReduce,  // reduce into the mean, adding to earlier micro-batches
  kUse,     // kReduce for the last time; the mean stays here until DropMean
};

class FlatGradients {
 public:
  // `layout` must outlive this object.
  FlatGradients(const Context& context, BufferPool& pool, const FlatLayout& layout,
                GradientTravel wire);
  ~FlatGradients();
  FlatGradients(const FlatGradients&) = delete;
  FlatGradients& operator=(const FlatGradients&) = delete;

  // Adds parameter `i`'s gradient of one backward pass, times the arrival factor. At most one call
  // for each parameter and pass.
  void Add(int i, const at::Tensor& gradient);
  // Lets `write` add directly to the buffer of parameter `i`; may be called any number of times.
  // Returns false if gradients must be converted on arrival: by the arrival factor, or to a dtype
  // that `write` does not support.
  bool Put(int i, const at::Tensor& parameter, const gradients::WriteGradient& write,
           gradients::DestinationDtype dtype);
  // Sets the tier that stores the reduced shard (default: Tiers::gradients). If the shard is stored
  // in a file, `measure` is called after each reduction, while the shard is in memory.
  using Measure = std::function<double(const at::Tensor& shard)>;
  void set_storage_tier(StorageTier storage_tier, Measure measure);
  void set_arrival_factor(double factor) { arrival_factor_ = factor; }
  // See Unit::AcceptGradients.
  bool accepts() const { return accepts_; }
  void set_accepts(bool accepts) { accepts_ = accepts; }
  // Defers arrivals: Add and Put only append to `queue`, and the caller runs the entries in order
  // later. Null turns this off.
  using Queue = std::vector<std::function<void()>>;
  void DelayInto(Queue* queue) { queue_ = queue; }

  // Ends a micro-batch. Call it once all gradients of the micro-batch have arrived.
  void EndMicroBatch(MicroBatchEnd end);
  void Await();
  // Ends the step's last micro-batch. The mean over ranks is available when it returns.
  void Reduce();
  // Call it in place of Reduce, for unsharded gradients: the buffer keeps this rank's own
  // gradients.
  void KeepOwnGradients();

  // Returns this rank's shard of the mean, read-only. Requires Reduce.
  Lease shard();
  // The shard's measure, if it was taken and the mean cannot have been written since.
  std::optional<double> measured() const { return measured_; }
  // Returns a range for the optimizer: a range of the shard if optimizer state is sharded,
  // otherwise of the full buffer.
  Lease for_optimizer(const FlatRange& range, Access access = Access::kRead);
  FlatRange optimizer_range() const;
  // Returns the same range as a source that is read and written piece by piece, without keeping it
  // in memory. Valid until Clear.
  std::shared_ptr<checkpoint::TensorSource> SourceOf(const FlatRange& range);
  // Prefetch starts loading a range of an offloaded shard. Offload offloads the range again; it
  // must not be leased.
  void Prefetch(const FlatRange& range);
  void Offload(const FlatRange& range);

  // Returns the number of bytes that a reduction sends between ranks.
  std::int64_t travelling_bytes() const;

  // The first non-finite gradient on this rank since Clear. Only small gradients on the CPU are
  // checked (norms and biases, which see the same overflow as large ones): on a GPU every check
  // would block.
  const std::optional<NonFiniteArrival>& first_non_finite() const { return non_finite_; }
  // Returns for each parameter whether Add was called for it since Clear.
  const std::vector<bool>& received_in_step() const { return received_in_step_; }
  // Frees the mean once an update has used it. Everything else known about the step is kept.
  void DropMean();
  bool has_mean() const { return own_.defined() || full_.defined(); }
  void Clear();

 private:
  void PutOrAdd(int i, const at::Tensor& parameter, const gradients::WriteGradient& write,
                gradients::DestinationDtype dtype);
  void EndArrival(int parameter, const at::Tensor& gradient);
  void RecordFirstNonFinite(int parameter, const at::Tensor& gradient);
  // Returns the buffer that Add writes to. Allocates it if needed, with zeros in the gaps between
  // parameters.
  Lease AcquireBuffer();
  Lease AcquireForArrival();
  // Sums over several micro-batches have the gradients' own dtype.
  c10::ScalarType arrival_dtype() const {
    const bool adds_up = !context_.sharding.gradients || context_.windows.gradients.full_step;
    return adds_up ? context_.dtypes.gradient : wire_.dtype;
  }
  at::Tensor ViewOwnPart(const at::Tensor& full) const;
  void ZeroMissingParameters();
  // True if no other rank contributes: the local gradients already are the mean.
  bool is_alone() const;
  bool CanReduceBeforeTheEnd() const;
  bool IsReduced() const;
  void BeginReduction();
  void BeginReduceIntoShard(const at::Tensor& gradients);
  void BeginReduceEverywhere();
  void ReduceOverReplicas();
  void MeasureInFile(const at::Tensor& mean);

  const Context& context_;
  const FlatLayout& layout_;
  const GradientTravel wire_;
  double arrival_factor_ = 1.0;
  bool accepts_ = true;
  Queue* queue_ = nullptr;
  StorageTier storage_tier_;
  Measure measure_;
  std::optional<double> measured_;
  std::unique_ptr<PooledTensor> block_;  // sharded: this micro-batch's gradients
  Store full_;                           // unsharded: the step's gradients
  Store own_;                            // the reduced shard, unless it is a view of full_
  struct PendingReduction;
  std::unique_ptr<PendingReduction> reduction_;
  bool is_mean_ = false;                // full_ holds the mean
  bool is_used_at_once_ = false;        // an update follows the reduction at once
  std::vector<bool> received_;          // since the buffer was acquired
  std::vector<bool> received_in_step_;  // since Clear
  std::int64_t micro_step_ = 0;         // since Clear
  std::optional<NonFiniteArrival> non_finite_;
  std::optional<LossFeedbacks> feedbacks_;  // of LoCo
};

}  // namespace ds::zero
