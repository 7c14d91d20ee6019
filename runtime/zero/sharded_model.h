#pragma once

// ShardedModel: all units of a model on one rank, and when each is present.
//
// The forward pass enters units, usually all in order. The backward pass enters them in reverse,
// through marks in the autograd graph. A plan (plan/zero/residency_plan.h) decides which units are
// gathered, released and reduced at each point; it is the same on every rank, no matter which
// gradients a rank has. A backward pass may go through the graphs of several forward passes, one
// after the other.
//
// Threads: one thread at a time. All methods but the getters are collective.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/zero/residency.h"
#include "runtime/zero/unit.h"

namespace ds::zero {

// The source of a unit's first values.
enum class FirstValues {
  kSameEverywhere,  // every rank has set at least its own ranges, consistently
  kRankZeros,       // copy rank 0's values
};

// A range of one parameter that this rank keeps; full parameters if they are not sharded.
struct OwnRange {
  std::string name;
  std::int64_t first = 0;  // element
  at::Tensor values;       // flat
};

// Sets the first values of unit `index`. Its parameters are present. Only the values in `own` are
// kept after the call; setting the others is optional.
using FillUnit = std::function<StatusOr<FirstValues>(int index, const std::vector<OwnRange>& own)>;

// The gradient work that a backward pass has deferred, by unit.
using DelayedGradients = std::vector<FlatGradients::Queue>;

class ShardedModel {
 public:
  // Builds the model unit by unit: allocates, fills, keeps the own shard, releases the rest. Fails
  // for parameters that are not floating point or are on another device, a parameter in two units,
  // parameters that share memory, and ranks with different models. All ranks return the same
  // status.
  static StatusOr<std::unique_ptr<ShardedModel>> Create(const Context& context,
                                                        const std::vector<ParameterUnit>& units,
                                                        const FillUnit& fill);

  const Context& context() const { return context_; }
  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }
  // Numbers of elements in the full model: trained and frozen.
  std::int64_t trainable_numel() const { return trainable_numel_; }
  std::int64_t frozen_numel() const { return frozen_numel_; }

  // Begins a forward pass, or another pass through units in order: all units, or the chunk of a
  // pipeline stage.
  void BeginForward() { BeginForward(UnitRange{0, static_cast<int>(units_.size())}); }
  void BeginForward(UnitRange units);
  // Begins a forward pass through all units that is expected to visit these one after the other. It
  // may take any other path, which gathers nothing ahead. See visits.
  void BeginForward(const std::vector<int>& visits);
  // The visits of the latest forward pass: what to expect of the next one.
  const std::vector<int>& visits() const { return residency_->visits(); }
  // Begins a pass that reads the stored weights, between steps. Values that ZeRO++ normally
  // quantizes in transit arrive exactly. Lasts until EndReading.
  void BeginReading();
  // Gathers these units at once, and no others.
  void BeginReading(const std::set<int>& units);
  void EndReading();
  // Gathers unit `index` and the units it also reads. Call it before its forward, also if a
  // backward pass recomputes it, and before its parameters are read or written.
  void Enter(int index) { residency_->EnterForward(index); }
  // Makes unit `index` read unit `other`, too, from its next Enter on.
  void AddReads(int index, int other) { residency_->AddReads(index, other); }
  // Ends the forward pass of unit `index`. The caller must replace the unit's outputs, and
  // everything that later units use, by the returned tensors. A backward pass through them throws
  // once this object is destroyed.
  std::vector<at::Tensor> LeaveForward(int index, std::vector<at::Tensor> outputs);

  // Ends the forward pass after the last unit. If a backward pass follows, that unit stays present.
  void EndForward();
  // Call these around the passes of a step: they open and close the context's parameter window.
  void OpenWindow() { residency_->KeepParameters(context_.windows.parameters.full_step); }
  void CloseWindow() { residency_->KeepParameters(false); }
  // Ends a backward pass through all units or a chunk: reduces and releases the remaining ones.
  void EndBackward() { EndBackward({0, static_cast<int>(units_.size())}); }
  void EndBackward(UnitRange units) { residency_->EndBackward(units, gradient_end_); }
  // Makes later backward passes defer the gradients' arrival to `delayed`, which must outlive them;
  // null turns this off. Such passes use GradientEnd::kLater.
  void DelayGradients(DelayedGradients* delayed);
  // Runs the deferred work in a pass through these units, and clears `delayed`.
  void BringGradients(UnitRange units, DelayedGradients* delayed);
  // See Residency::hash.
  std::uint64_t plan_hash() const { return residency_->hash(); }
  // Sets how later backward passes treat gradients.
  void EndGradients(GradientEnd end) { gradient_end_ = end; }
  void SetUpdates(UnitUpdates updates) { residency_->SetUpdates(std::move(updates)); }
  // Sets whether backward passes may bring gradients (default: yes). Otherwise they throw.
  void AcceptGradients(bool accepts);
  bool accepts_gradients() const { return accepts_gradients_; }
  // Fails if a parameter has a gradient in `.grad`: a backward pass leaves none there, so an update
  // would not use it, and a later pass would add it to its own gradient. Names a parameter that was
  // frozen when the model was created, and is no more.
  Status CheckNoStrayGradients() const;
  // Multiplies the gradients of later backward passes by `factor`.
  void ScaleGradients(double factor);

  // Releases units, except those that the budgets allow to stay.
  void ReleaseAll() { residency_->ReleaseAll(); }
  // Waits for the gathers that publishing has started.
  void AwaitParameters() { residency_->AwaitParameters(); }
  // ReleaseAll, including those that would stay.
  void EvictAll() { residency_->Evict(); }
  // EvictAll; also frees the idle buffers of the pool.
  void FreeBuffers();

 private:
  explicit ShardedModel(const Context& context) : context_(context), pool_(context_) {}
  void GatherExactly(bool exactly);
  Status AddUnit(const ParameterUnit& described, const FillUnit& fill);
  StorageTier ChooseStorageTier(const ParameterUnit& described);

  const Context context_;
  BufferPool pool_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::optional<Residency> residency_;  // set once all units are built
  GradientEnd gradient_end_ = GradientEnd::kAsSharded;
  bool accepts_gradients_ = true;
  std::int64_t resident_parameter_bytes_ = 0;  // of shards that would otherwise be offloaded
  std::int64_t trainable_numel_ = 0;
  std::int64_t frozen_numel_ = 0;
  // The marks in autograd graphs, which may outlive this object, refer to it weakly.
  std::shared_ptr<ShardedModel*> self_ = std::make_shared<ShardedModel*>(this);
};

// Calls visit(Bucket&) for the buckets of a model, in model order.
template <typename Visit>
void ForEachBucket(const ShardedModel& model, Visit visit) {
  for (const auto& unit : model.units()) {
    for (const auto& bucket : unit->buckets()) visit(*bucket);
  }
}

// Calls visit(Bucket&, first) for the trainable buckets. `first` is the ordinal of the bucket's
// first parameter among the trainable parameters of the model.
template <typename Visit>
void ForEachTrainableBucket(const ShardedModel& model, Visit visit) {
  std::int64_t first = 0;
  ForEachBucket(model, [&](Bucket& bucket) {
    if (!bucket.trainable()) return;
    visit(bucket, first);
    first += bucket.parameters().layout().size();
  });
}

}  // namespace ds::zero
