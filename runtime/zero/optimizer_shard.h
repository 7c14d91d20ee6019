#pragma once

// OptimizerShard: the optimizer's state for what this rank updates of one group of parameters.

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/stateful.h"
#include "runtime/optim/optimizer.h"
#include "runtime/zero/unit.h"

namespace ds::zero {

class OptimizerShard {
 public:
  // State starts at zero, master weights at the parameters' values. `first_parameter` is the
  // ordinal of the group's first parameter among the trainable ones. Requires a trainable group; it
  // and the optimizer outlive this.
  OptimizerShard(const Context& context, Group& group, const optim::Optimizer& optimizer,
                 std::int64_t first_parameter);

  // Makes the part that the optimizer updates. Requires reduced gradients.
  optim::Part MakePart() const;
  // Brings the updated parameters to all ranks. Collective.
  void Publish();

  // The weights that are updated and the optimizer's state of this rank, parameter by parameter.
  void AddShards(std::vector<checkpoint::TensorShard>* shards) const;
  // After those weights have been written from outside: makes the parameters of all ranks
  // follow. Collective.
  void PublishWeights();

  // Between steps: goes to host memory until MoveBack.
  void MoveStateToHost();
  void MoveMastersToHost() { MoveToHost(context_, master_); }
  void MoveBack();

 private:
  // The weights that the optimizer updates: its own, or the parameters.
  at::Tensor weights() const { return master_.defined() ? master_.tensor : target_; }

  const Context& context_;
  Group& group_;
  const std::int64_t first_parameter_;
  FlatRange range_;    // what this rank updates
  at::Tensor target_;  // that part of the parameters
  optim::FlatUpdate launch_ = nullptr;
  BookedTensor master_;
  std::span<const std::string_view> state_names_;
  std::vector<BookedTensor> state_;  // as they name it
};

// A range of a group's buffer as a checkpoint holds it, under the names `<parameter><suffix>`.
struct CheckpointedRange {
  at::Tensor flat;
  FlatRange range;
  std::string suffix;
  checkpoint::Replica replica;
};
// Appends the range as shards of the group's parameters.
void AddShardsOf(const FlatParameters& parameters, const CheckpointedRange& held,
                 std::vector<checkpoint::TensorShard>* shards);

}  // namespace ds::zero
