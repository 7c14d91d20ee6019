#pragma once

// ShardedOptimizer: the update at the end of a step, over all of a model's units.
//
//   optimizer.ReduceGradients();
//   const double squares = optimizer.SumOfSquaresOfShard();   // summed over ranks by the caller
//   optimizer.Step({.lr = ..., .gradient_scale = ..., .step = ...});
//   optimizer.ClearGradients();
//
// The norm is always computed from this rank's shard, whatever is sharded, so that it has the same
// bits at every stage.
//
// Threads: one thread at a time. Collective: ReduceGradients, Step, PublishWeights.

#include <memory>
#include <string_view>
#include <vector>

#include "runtime/zero/optimizer_shard.h"
#include "runtime/zero/sharded_model.h"

namespace ds::zero {

class ShardedOptimizer {
 public:
  // `model` outlives this.
  ShardedOptimizer(ShardedModel& model, const config::OptimizerConfig& config);

  void ReduceGradients();
  double SumOfSquaresOfShard() const;
  void Step(const optim::Update& update);
  void ClearGradients();

  // Whose state AddShards hands out: optim::Optimizer::name.
  std::string_view optimizer_name() const { return optimizer_->name(); }
  // fp32 weights and optimizer state of what is trained, values of what is frozen.
  void AddShards(std::vector<checkpoint::TensorShard>* shards) const;
  void PublishWeights();

 private:
  ShardedModel& model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::int64_t parameter_count_ = 0;                     // trainable ones
  std::vector<std::unique_ptr<OptimizerShard>> shards_;  // of the trainable groups, in model order
};

}  // namespace ds::zero
