#pragma once

// OptimizerShard: Adam's state for what this rank updates of one group of parameters.

#include <memory>
#include <string>
#include <vector>

#include "runtime/checkpoint/stateful.h"
#include "runtime/config/ds_config.h"
#include "runtime/optim/adam.h"
#include "runtime/zero/unit.h"

namespace ds::zero {

class OptimizerShard {
 public:
  // State starts at zero, master weights at the parameters' values. Requires a trainable group,
  // which outlives this.
  OptimizerShard(const Context& context, Group& group);

  // Updates the parameters from group.gradients (reduced), then brings them to all ranks.
  // Collective.
  void Step(const config::OptimizerConfig& config, const optim::AdamStep& step);

  // The fp32 weights and the moments of this rank, parameter by parameter.
  void AddShards(std::vector<checkpoint::TensorShard>* shards) const;
  // After the fp32 weights have been written from outside: makes the parameters of all ranks
  // follow. Collective.
  void PublishWeights();

 private:
  // The fp32 weights that Adam updates.
  at::Tensor weights() const { return master_.defined() ? master_.tensor : target_; }

  const Context& context_;
  Group& group_;
  FlatRange range_;    // what this rank updates
  at::Tensor target_;  // that part of the parameters
  BookedTensor master_;
  BookedTensor exp_avg_;
  BookedTensor exp_avg_sq_;
};

// Appends `flat`, which holds `range` of the group's buffer, as shards of the parameters named
// `<parameter><suffix>`.
struct FlatView {
  at::Tensor flat;
  FlatRange range;
  std::string suffix;
  checkpoint::Replica replica;
};
void AddShardsOf(const FlatParameters& parameters, const FlatView& view,
                 std::vector<checkpoint::TensorShard>* shards);

}  // namespace ds::zero
