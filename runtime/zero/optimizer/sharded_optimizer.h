#pragma once

// ShardedOptimizer: the optimizer update at the end of a step, over all units of a model.
//
//   optimizer.ReduceGradients(step);
//   const double squares = optimizer.MeasureShard().Read();   // summed over ranks by the caller
//   optimizer.Step({.lr = ..., .gradient_scale = ..., .step = ...});
//   optimizer.ClearGradients();
//
// Update in the backward pass (Tiers::updates_in_backward): call BeginUpdate before a backward pass
// with GradientEnd::kUpdate. Buckets are then updated in that pass, and Step updates the remaining
// ones. Only the sum of squares of their gradients is kept. With Tiers::rolls_back this update is
// speculative, because the norm is not known yet: gradients and old values are kept. If the right
// gradient_scale differs, Step repeats the update from the old values; RollBack rolls it back. No
// bit changes. With Tiers::overlaps_update a thread with its own cores does the update. That thread
// owns a unit's stores until the next unit's gradients, or the backward pass, have ended.
//
// The norm is always computed from this rank's shard, so it is bit-identical at every ZeRO stage.
//
// Threads: one thread at a time. Collective: ReduceGradients, Step, PublishWeights.

#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/stateful.h"
#include "runtime/optim/optimizer.h"
#include "runtime/zero/sharded_model.h"
#include "runtime/zero/state_kind.h"

namespace ds::optim {
class SquareSum;
}

namespace ds::zero {

class OptimizerShard;
class ZenFlow;

// A sum of squares; a part of it may still be pending on the device.
struct Squares {
  double on_host = 0.0;
  at::Tensor on_device = {};  // a double scalar; undefined: none

  double Read() const;  // waits for the device
  void Add(const Squares& more);
};

class ShardedOptimizer {
 public:
  // `model` must outlive this object.
  ShardedOptimizer(ShardedModel& model, const config::OptimizerConfig& config,
                   const std::optional<config::ZenFlowConfig>& zenflow = std::nullopt);
  ~ShardedOptimizer();

  // Returns whether update number `step` uses the mean over ranks (see ReduceGradients).
  bool TakesMeans(std::int64_t step) const { return !optimizer_->NeedsLocalGradients(step); }
  // Reduces the gradients for update number `step` to the mean over ranks. If the update uses each
  // rank's own gradients (optim::Optimizer::NeedsLocalGradients), it leaves them as they are.
  // Gradients of parameters that several pipeline stages hold (Placement::stages) are summed over
  // those stages.
  void ReduceGradients(std::int64_t step);
  // Returns the sum of squares of this rank's gradient shard. For own gradients it is scaled so
  // that the sum over ranks is the mean of the ranks' squares. Does not wait for the device if all
  // gradients are on it.
  Squares MeasureShard() const;
  // Returns whether the step's update may be decided on the device (optim::Update::decision). This
  // requires that the update uses the mean over ranks, changes everything at the end of the step,
  // and can be skipped without any effect.
  bool takes_decision() const;
  // Returns the norm that this rank clips by: `norm`, the norm of the mean; or the norm of its own
  // gradients if the update uses those.
  double NormToClip(double norm) const;
  // Begins an update in the backward pass. Requires an optimizer of Reach::kElement, and the same
  // numbers in the step's later calls.
  void BeginUpdate(const optim::Update& update);
  // Returns whether a bucket has been updated since ClearGradients.
  bool has_updated() const;
  // Rolls back all updates since ClearGradients and returns true. Returns false if that is no
  // longer possible. Collective.
  bool RollBack();
  void Step(const optim::Update& update);
  void ClearGradients();

  // Returns the name of the optimizer whose state AddShards returns (optim::Optimizer::name).
  std::string_view optimizer_name() const;
  // See optim::Optimizer::has_local_moves. If true, weights differ between ranks, and equal values
  // written into them would diverge once the optimizer reverts its local moves.
  bool has_local_moves() const { return optimizer_->has_local_moves(); }
  // Appends master weights and optimizer state of trained parameters, and values of frozen ones.
  // They are not moved to another tier.
  void AddShards(std::vector<checkpoint::TensorShard>* shards) const;
  void PublishWeights();
  // The optimizer's state besides the tensors. LoadState comes after the tensors have been written,
  // and publishes the weights.
  nlohmann::json State() const;
  // These implement checkpoint::Stateful.
  Status CheckState(const nlohmann::json& state) const;
  void ExpectState(const nlohmann::json& state);
  Status LoadState(const nlohmann::json& state);
  // Waits for the update that runs in the background (ZenFlow::Settle). Collective.
  void Settle();

  // Moves one kind of state to host memory, between steps. Until MoveBack no other method may be
  // called. Optimizer memory that is not in AddShards' tensors is not moved.
  void MoveToHost(StateKind kind);
  void MoveBack();

 private:
  void AddUpOverStages();
  double SumOfOwnSquares() const;
  // Adds squares of tensors that are, and stay, on another device than the CPU to `device_sum`
  // instead.
  double SumOfSquaresOf(const OptimizerShard& shard, optim::SquareSum* device_sum = nullptr) const;
  // Step for an optimizer that needs all parts at once.
  void StepAtOnce(const optim::Update& update);
  // Step for all others: offloaded tensors are loaded and offloaded sub-group by sub-group.
  void StepInSubGroups(const optim::Update& update);
  // Starts loading the first tensors that the unit's update needs.
  void PrepareUnit(int unit);
  void UpdateUnit(int unit);
  // Waits for the background update, and finishes it on this thread.
  void FinishOverlappedUpdate();
  // Finishes an updated shard on this thread: starts publishing it. Collective.
  void LeaveUpdated(OptimizerShard& shard);
  std::span<const std::unique_ptr<OptimizerShard>> ShardsOf(int unit) const;
  optim::RankSlices DescribeRank() const;
  void WaitAndOffload();

  ShardedModel& model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::int64_t parameter_count_ = 0;                     // number of trainable parameters
  bool takes_all_at_once_ = false;                       // optim::Reach::kModel
  bool own_gradients_ = false;                           // set by ReduceGradients
  std::vector<std::unique_ptr<OptimizerShard>> shards_;  // of trainable buckets, in model order
  std::vector<std::size_t> first_of_unit_;               // by unit, in shards_; then their number
  std::optional<optim::Update> update_;                  // running in the backward pass
  std::vector<std::optional<Squares>> squares_;          // by shard; set once it is updated
  std::unique_ptr<ZenFlow> zenflow_;                     // null: every step updates everything
  std::vector<OptimizerShard*> updating_shards_;         // shards used by the background update
  std::future<void> overlapped_update_;
};

}  // namespace ds::zero
