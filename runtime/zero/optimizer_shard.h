#pragma once

// OptimizerShard: master weights and the optimizer's state for what this rank updates of a bucket:
// its shard where the optimizer is sharded, otherwise all of it. State is kept by training range,
// as ranges may have state of different names.
//
// Threads: one thread at a time.

#include <span>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/stateful.h"
#include "runtime/optim/optimizer.h"
#include "runtime/zero/bucket.h"

namespace ds::zero {

class OptimizerShard {
 public:
  // State starts at zero, master weights at the parameters' values. `first_parameter` is the
  // ordinal of the bucket's first parameter among the trainable ones. Requires a trainable bucket;
  // it and the optimizer outlive this.
  OptimizerShard(const Context& context, Bucket& bucket, const optim::Optimizer& optimizer,
                 std::int64_t first_parameter);

  // Makes the parts that the optimizer updates, one for each range, which are there as long as
  // `leases` are. Requires reduced gradients.
  std::vector<optim::Part> MakeParts(std::vector<Lease>* leases);
  // Begins to bring the updated parameters to all ranks (FlatParameters::Publish). Collective.
  void Publish();
  // Takes this rank's part of them to where it rests. Requires that no part of MakeParts lives.
  void Stow() { bucket_.parameters().Stow(); }

  // The weights that are updated and the optimizer's state of this rank, parameter by parameter.
  void AddShards(std::vector<checkpoint::TensorShard>* shards);
  // After those weights have been written from outside: begins to make the parameters of all ranks
  // follow. Collective.
  void PublishWeights();

  // Between steps: goes to host memory until MoveBack.
  void MoveStateToHost();
  void MoveMastersToHost() { master_.Release(); }
  void MoveBack();

 private:
  struct RangeState {
    TrainingRange of;
    FlatRange range;  // what this rank updates of it, in the buffer
    std::span<const std::string_view> names;
    std::vector<Store> stores;  // as they name it
  };

  // The weights that the optimizer updates: its own, or the parameters.
  Lease AcquireWeights() { return master_.defined() ? master_.Acquire() : AcquireTarget(); }
  // Takes what of the parameters is updated.
  Lease AcquireTarget();
  optim::Part MakePart(RangeState& state, std::vector<Lease>* leases);
  std::vector<optim::Segment> ListSegments(const FlatRange& range, const RangeState& state) const;

  const Context& context_;
  Bucket& bucket_;
  const std::int64_t first_parameter_;
  FlatRange own_;  // what this rank updates of the buffer
  optim::FlatUpdate launch_ = nullptr;
  Store master_;
  std::vector<RangeState> states_;
};

// A range of a bucket's layout as a checkpoint holds it, under the names `<parameter><suffix>`.
struct CheckpointedRange {
  Store& store;
  FlatRange stored;  // of the layout
  FlatRange range;   // of that
  std::string suffix;
  bool is_shard = false;  // this rank's; otherwise the whole buffer
};

// Appends the range as shards of the bucket's parameters.
void AddShardsOf(const Context& context, const FlatParameters& parameters,
                 const CheckpointedRange& held, std::vector<checkpoint::TensorShard>* shards);

}  // namespace ds::zero
