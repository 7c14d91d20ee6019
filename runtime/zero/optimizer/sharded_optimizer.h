#pragma once

// ShardedOptimizer: the update at the end of a step, over all of a model's units.
//
//   optimizer.ReduceGradients(step);
//   const double squares = optimizer.MeasureShard().Read();   // summed over ranks by the caller
//   optimizer.Step({.lr = ..., .gradient_scale = ..., .step = ...});
//   optimizer.ClearGradients();
//
// With Tiers::updates_in_backward, and BeginUpdate ahead of a backward pass that has
// GradientEnd::kUpdate, buckets are updated in that pass, and Step updates what is left. Of their
// gradients nothing remains but the sum of squares. Where that may not be the step's update, as the
// norm is not known yet (Tiers::takes_back), gradients and what was there before remain: Step
// updates again, from there, by the right gradient_scale, or TakeBack goes back. No bit changes.
// With Tiers::updates_beside a thread with cores of its own does that: a unit's stores are its own
// until the next unit's gradients have ended, or the backward pass.
//
// The norm is always computed from this rank's shard, whatever is sharded, so that it has the same
// bits at every stage.
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
class SquaresOfParts;
}

namespace ds::zero {

class OptimizerShard;
class ZenFlow;

// Squares is a sum of squares, of which a part may still be coming on the device.
struct Squares {
  double on_host = 0.0;
  at::Tensor on_device = {};  // a double scalar; undefined: nothing

  double Read() const;  // waits for the device
  void Add(const Squares& more);
};

class ShardedOptimizer {
 public:
  // `model` outlives this.
  ShardedOptimizer(ShardedModel& model, const config::OptimizerConfig& config,
                   const std::optional<config::ZenFlowConfig>& zenflow = std::nullopt);
  ~ShardedOptimizer();

  // Tells whether that update takes the mean over ranks (ReduceGradients).
  bool TakesMeans(std::int64_t step) const { return !optimizer_->WantsOwnGradients(step); }
  // Reduces for update number `step`: the mean over ranks is there after this, or, for an update
  // that takes them so (optim::Optimizer::WantsOwnGradients), each rank's own gradients. Of what
  // several stages hold (Placement::stages) their gradients are added up.
  void ReduceGradients(std::int64_t step);
  // Sums the squares of this rank's gradient; of own gradients such that the sum over ranks is the
  // mean of the ranks' squares. Does not wait for a device that all of it lies on.
  Squares MeasureShard() const;
  // Tells whether the step's update may be decided where its parameters are (optim::Update::
  // decision): it takes the mean over ranks, changes everything at the end of the step, and leaves
  // everything as it was where it is not to be.
  bool takes_decision() const;
  // Returns the norm that this rank clips by: `norm`, which is the mean's, or that of its own
  // gradients where the update takes those.
  double NormToClip(double norm) const;
  // Requires an optimizer of Reach::kElement, and in the step's later calls the same numbers.
  void BeginUpdate(const optim::Update& update);
  // Tells whether a bucket has been updated since ClearGradients.
  bool has_updated() const;
  // Makes what has been updated since ClearGradients what it was, and returns true; returns false
  // where that cannot be done any more. Collective.
  bool TakeBack();
  void Step(const optim::Update& update);
  void ClearGradients();

  // The optimizer whose state AddShards hands out: optim::Optimizer::name.
  std::string_view optimizer_name() const;
  // optim::Optimizer::has_local_moves: then weights of ranks differ, and what is written into them
  // would not be alike either once the optimizer takes its moves back.
  bool has_local_moves() const { return optimizer_->has_local_moves(); }
  // Master weights and optimizer state of what is trained, values of what is frozen, wherever they
  // lie: they do not move meanwhile.
  void AddShards(std::vector<checkpoint::TensorShard>* shards) const;
  void PublishWeights();
  // The optimizer's numbers beside the tensors; loading takes place after the tensors have been
  // written, and publishes the weights.
  nlohmann::json State() const;
  // These are checkpoint::Stateful's.
  Status CheckState(const nlohmann::json& state) const;
  void ExpectState(const nlohmann::json& state);
  Status LoadState(const nlohmann::json& state);
  // Ends what goes on beside the training (ZenFlow::Settle). Collective.
  void Settle();

  // Between steps: takes one kind of state to host memory. Until MoveBack nothing else may be
  // called. What an optimizer keeps beside AddShards' tensors stays where it is.
  void MoveToHost(StateKind kind);
  void MoveBack();

 private:
  void AddUpOverStages();
  double SumOfOwnSquares() const;
  // Adds to `away` instead what lies on another device than the CPU, and stays there.
  double SumOfSquaresOf(const OptimizerShard& shard, optim::SquaresOfParts* away = nullptr) const;
  // Step for an optimizer that must have all parts at once.
  void StepAtOnce(const optim::Update& update);
  // Step for all others: what rests elsewhere comes and goes turn by turn.
  void StepInTurns(const optim::Update& update);
  // Begins to bring what the update of the unit begins with.
  void PrepareUnit(int unit);
  void UpdateUnit(int unit);
  // Waits for what is updated beside, and does what is left of it.
  void EndUpdateBeside();
  // Does with an updated shard what is this thread's: begins to publish it. Collective.
  void LeaveUpdated(OptimizerShard& shard);
  std::span<const std::unique_ptr<OptimizerShard>> ShardsOf(int unit) const;
  optim::RankParts DescribeRank() const;
  void AwaitAndStow();

  ShardedModel& model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::int64_t parameter_count_ = 0;                     // trainable ones
  bool takes_all_at_once_ = false;                       // optim::Reach::kModel
  bool own_gradients_ = false;                           // after ReduceGradients
  std::vector<std::unique_ptr<OptimizerShard>> shards_;  // of the trainable buckets, in model order
  std::vector<std::size_t> first_of_unit_;               // of shards_, by unit, and their number
  std::optional<optim::Update> update_;                  // in progress in the backward pass
  std::vector<std::optional<Squares>> squares_;          // by shard: of those that it has updated
  std::unique_ptr<ZenFlow> zenflow_;                     // null: all is updated in every step
  std::vector<OptimizerShard*> lent_;                    // to the update beside
  std::future<void> beside_;
};

}  // namespace ds::zero
