#pragma once

// ShardedModel: all units of a model on one rank, and which of them are present when.
//
// The forward pass enters the units in order; the backward pass enters them again, in reverse,
// through marks in the autograd graph. What is brought, taken away and reduced there says a plan
// (residency_plan.h), the same on every rank, whatever gradients a rank has. A backward pass may go
// through the graphs of several forward passes, one after the other.
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

// The origin of a unit's first values.
enum class FirstValues {
  kSameEverywhere,  // every rank has set its own ranges, at least, and they fit together
  kRankZeros,       // those of rank 0
};

// A range of one parameter that this rank keeps, whole parameters where they are not sharded.
struct OwnRange {
  std::string name;
  std::int64_t first = 0;  // element
  at::Tensor values;       // flat
};

// Sets the first values of unit `index`, whose parameters are present. Of these only `own` outlives
// the call, so nobody needs to compute more.
using FillUnit = std::function<StatusOr<FirstValues>(int index, const std::vector<OwnRange>& own)>;

// DelayedGradients is what a backward pass has left to do for the gradients of parameters, by unit.
using DelayedGradients = std::vector<FlatGradients::Queue>;

class ShardedModel {
 public:
  // Builds unit by unit: memory, values, own shard kept, rest released. Refuses parameters that are
  // not floating point or lie on another device, a parameter that is in two units, two that share
  // memory, and ranks whose models are not the same. All ranks return the same status.
  static StatusOr<std::unique_ptr<ShardedModel>> Create(const Context& context,
                                                        const std::vector<ParameterUnit>& units,
                                                        const FillUnit& fill);

  const Context& context() const { return context_; }
  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }
  // Parameters of the whole model: with gradients, and frozen.
  std::int64_t trainable_numel() const { return trainable_numel_; }
  std::int64_t frozen_numel() const { return frozen_numel_; }

  // Begins a forward pass, or another pass through units in order: all of them, or a stage's chunk.
  void BeginForward() { BeginForward({0, static_cast<int>(units_.size())}); }
  void BeginForward(UnitRange units) { forward_graph_ = residency_->BeginForward(units); }
  // The same, between steps, to read the weights as they are kept: what ZeRO++ rounds on the way to
  // the blocks arrives exactly. Until EndReading.
  void BeginReading();
  // Brings these units at once, and no others.
  void BeginReading(const std::set<int>& units);
  void EndReading();
  // Brings unit `index` and those it also reads: before it runs forward, or is read or written.
  void Enter(int index) { residency_->EnterForward(index); }
  // Ends the forward pass of unit `index`. What it has computed from its parameters and what later
  // units will use must be replaced by the result.
  std::vector<at::Tensor> LeaveForward(int index, std::vector<at::Tensor> outputs);

  // Ends the forward pass behind the last unit. With a backward pass to follow, that unit stays
  // present.
  void EndForward();
  // Around the passes of a step: the context's window of parameters.
  void OpenWindow() { residency_->KeepParameters(context_.windows.parameters.whole_step); }
  void CloseWindow() { residency_->KeepParameters(false); }
  // Ends a backward pass, through all units or a chunk: reduces and releases what is left.
  void EndBackward() { EndBackward({0, static_cast<int>(units_.size())}); }
  void EndBackward(UnitRange units) { residency_->EndBackward(units, gradient_end_); }
  // Has what the backward passes to come bring wait in `delayed`, which outlives them; null: no
  // longer. Such passes are of GradientEnd::kLater.
  void DelayGradients(DelayedGradients* delayed);
  // Brings what has been delayed in a pass through these units; it is spent.
  void BringGradients(UnitRange units, DelayedGradients* delayed);
  // Residency::hash.
  std::uint64_t plan_hash() const { return residency_->hash(); }
  // Decides what the backward passes to come do with gradients.
  void EndGradients(GradientEnd end) { gradient_end_ = end; }
  void SetUpdates(UnitUpdates updates) { residency_->SetUpdates(std::move(updates)); }
  // Multiplies what the backward passes to come bring by `factor`.
  void ScaleGradients(double factor);

  // Takes units away, all but those that the budgets let stay.
  void ReleaseAll() { residency_->Rest(); }
  // Waits for what publishing has begun.
  void AwaitParameters() { residency_->AwaitParameters(); }
  // ReleaseAll, and those as well.
  void EvictAll() { residency_->Evict(); }
  // EvictAll, and frees the buffers that are kept for the next time.
  void FreeBuffers();

 private:
  explicit ShardedModel(const Context& context) : context_(context), pool_(context_) {}
  void GatherExactly(bool exactly);
  Status AddUnit(const ParameterUnit& described, const FillUnit& fill);
  Rest ChooseRest(const ParameterUnit& described);

  const Context context_;
  BufferPool pool_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::optional<Residency> residency_;           // once all units are there
  std::shared_ptr<ForwardGraph> forward_graph_;  // of the latest forward pass
  GradientEnd gradient_end_ = GradientEnd::kAsSharded;
  std::int64_t kept_parameter_bytes_ = 0;  // of shards that would rest elsewhere
  std::int64_t trainable_numel_ = 0;
  std::int64_t frozen_numel_ = 0;
};

}  // namespace ds::zero
