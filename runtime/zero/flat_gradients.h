#pragma once

// FlatGradients: the gradients of one FlatParameters, from single parameters' gradients in the
// backward pass to the mean over ranks that the optimizer reads.
//
// Unsharded, they are summed over micro-batches in a whole flat buffer, which is reduced once, at
// the end of the step. Sharded, the buffer is there only while the unit's backward runs; then it is
// reduced into the shard, unless it is told to hold, as in a window (plan/step_windows.h), whose
// sum is of the gradients' own dtype. Gradients arrive scaled so that their sum over micro-batches
// is the rank's mean. A parameter without a gradient counts as zeros.
//
// Nothing is held before the first gradient of a step and after Clear: gradients and the forward
// pass's activations, the largest tenants of a step, are not in memory together.
// A reduction that EndMicroBatch begins may be under way when it returns; whoever needs it waits.
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
#include "runtime/zero/gradient_travel.h"
#include "runtime/zero/storage/buffer_pool.h"
#include "runtime/zero/storage/context.h"
#include "runtime/zero/storage/store.h"

namespace ds::zero {

enum class MicroBatchEnd {
  kWait,    // gradients stay whole, for the next micro-batch or Reduce
  kReduce,  // into the mean that earlier micro-batches have begun
  kUse,     // the same, for the last time: the mean stays here until DropMean
};

class FlatGradients {
 public:
  // `layout` is borrowed.
  FlatGradients(const Context& context, BufferPool& pool, const FlatLayout& layout,
                GradientTravel travel);
  ~FlatGradients();
  FlatGradients(const FlatGradients&) = delete;
  FlatGradients& operator=(const FlatGradients&) = delete;

  // Adds what one backward pass has for parameter `i`, times the arrival factor. At most once each.
  void Add(int i, const at::Tensor& gradient);
  // Has `write` add to the place of parameter `i` itself, any number of times. Returns false where
  // gradients change on the way there: their dtype, if `write` does not do that, or by the arrival
  // factor.
  bool Put(int i, const at::Tensor& parameter, const gradients::WriteGradient& write,
           gradients::PlaceDtype dtype);
  // Says where the reduced shard rests: the tiers' place if not set. While one that rests in a file
  // is here, after each reduction, `measure` is taken of it.
  using Measure = std::function<double(const at::Tensor& shard)>;
  void set_rest(Rest rest, Measure measure);
  void set_arrival_factor(double factor) { arrival_factor_ = factor; }
  // Has what comes wait in `queue`, which is run in its order later: Add and Put only append to it.
  // Null: no longer.
  using Queue = std::vector<std::function<void()>>;
  void DelayInto(Queue* queue) { queue_ = queue; }

  // Ends a micro-batch, all of whose gradients are there.
  void EndMicroBatch(MicroBatchEnd end);
  void Await();
  // Ends the step's last micro-batch: the mean over ranks is there.
  void Reduce();
  // Takes the place of Reduce, of unsharded gradients: what is there stays this rank's own.
  void KeepOwnGradients();

  // This rank's shard of the mean, to read. Requires Reduce.
  Lease shard();
  // Its measure, if it was taken and nobody may have written to the mean since.
  std::optional<double> measured() const { return measured_; }
  // A range for the optimizer to read: of the shard when its state is sharded, else of everything.
  Lease for_optimizer(const FlatRange& range, Access access = Access::kRead);
  FlatRange optimizer_range() const;
  // The same to be read and written range by range, none of which stays in memory. Until Clear.
  std::shared_ptr<checkpoint::TensorSource> SourceOf(const FlatRange& range);
  // Begin to bring a reduced shard that rests elsewhere, and take back what nobody has.
  void Prefetch(const FlatRange& range);
  void Stow(const FlatRange& range);

  // Counts what a reduction sends between ranks.
  std::int64_t travelling_bytes() const;

  // Looked for on this rank, since Clear, among small gradients (of norms and biases, through which
  // flows what makes large ones so), and on the CPU only: on a GPU every look would wait.
  const std::optional<NonFiniteArrival>& first_non_finite() const { return non_finite_; }
  // Tells of each parameter whether Add was called for it since Clear.
  const std::vector<bool>& received_in_step() const { return received_in_step_; }
  // Frees the mean, which somebody has updated by; what else is known of the step stays.
  void DropMean();
  bool has_mean() const { return own_.defined() || whole_.defined(); }
  void Clear();

 private:
  void PutOrAdd(int i, const at::Tensor& parameter, const gradients::WriteGradient& write,
                gradients::PlaceDtype dtype);
  void EndArrival(int parameter, const at::Tensor& gradient);
  void RecordFirstNonFinite(int parameter, const at::Tensor& gradient);
  // Takes the buffer that Add writes to, made unless it is there, zeros where no parameter lies.
  Lease AcquireBuffer();
  Lease AcquireForArrival();
  // Sums of several micro-batches are of the gradients' own.
  c10::ScalarType arrival_dtype() const {
    const bool adds_up = !context_.sharding.gradients || context_.windows.gradients.whole_step;
    return adds_up ? context_.dtypes.gradient : travel_.dtype;
  }
  at::Tensor ViewOwnPart(const at::Tensor& whole) const;
  void ZeroMissingParameters();
  bool is_alone() const;  // its gradients are the mean, where they lie
  bool CanReduceBeforeTheEnd() const;
  bool IsReduced() const;
  void BeginReduction();
  void BeginReduceIntoShard(const at::Tensor& gradients);
  void BeginReduceEverywhere();
  void ReduceOverReplicas();
  void MeasureInFile(const at::Tensor& mean);

  const Context& context_;
  const FlatLayout& layout_;
  const GradientTravel travel_;
  double arrival_factor_ = 1.0;
  Queue* queue_ = nullptr;
  Rest rest_;
  Measure measure_;
  std::optional<double> measured_;
  std::unique_ptr<PooledTensor> block_;  // when sharded: this micro-batch's gradients
  Store whole_;                          // when not: the step's
  Store own_;                            // the reduced shard, where whole_ is not it
  struct UnderWay;
  std::unique_ptr<UnderWay> reduction_;
  bool is_mean_ = false;                // what whole_ holds
  bool is_used_at_once_ = false;        // the mean that is coming
  std::vector<bool> received_;          // since the buffer came
  std::vector<bool> received_in_step_;  // since Clear
  std::int64_t micro_step_ = 0;         // since Clear
  std::optional<NonFiniteArrival> non_finite_;
  std::optional<LossFeedbacks> feedbacks_;  // LoCo's
};

}  // namespace ds::zero
