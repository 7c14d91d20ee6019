#pragma once

// OptimizerShard: master weights and optimizer state for the part of a bucket that this rank
// updates: its shard if the optimizer is sharded, otherwise the full bucket. State is kept by
// training range, because ranges may have different state names.
//
// Threads: one thread at a time.

#include <optional>
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
  // ordinal of the bucket's first parameter among the trainable ones. `storage_tier` is the tier
  // that stores sharded state and masters. Requires a trainable bucket. The context, bucket and
  // optimizer must outlive this object.
  OptimizerShard(const Context& context, Bucket& bucket, const optim::Optimizer& optimizer,
                 std::int64_t first_parameter, StorageTier storage_tier);

  Bucket& bucket() const { return bucket_; }
  // Start of the updated part in the bucket's buffer.
  std::int64_t start() const { return own_.start; }

  // A sub-group: elements updated in one step, this rank's part of a training range or a piece of
  // it.
  struct SubGroup {
    std::size_t state = 0;
    FlatRange range;  // in the buffer
  };
  // Returns one sub-group for each training range, even an empty one. If the optimizer allows it, a
  // range is split into sub-groups of at most `most_elements` elements.
  std::vector<SubGroup> ListSubGroups(std::int64_t most_elements) const;
  // Start loading the offloaded tensors that a sub-group needs: all of them, or all but the
  // gradients.
  void Prefetch(const SubGroup& sub_group);
  void PrefetchState(const SubGroup& sub_group);
  enum class SliceUse {
    // For optim::RankSlices::for_each: parameters are read, and there is no low-precision copy.
    kReview,
    kUpdate,
    kDecided,  // kUpdate, but Update::decision on the device may skip it
    kTry,      // kUpdate, and saves the old values: requires Tiers::rolls_back
    kRetry,    // kUpdate, starting from the values that kTry saved
    // Only the updated parameters, as OptimizerSlice::parameter: with the gradient, or without it.
    kTarget,
    kTargetAlone,
    kStateOnly,  // only the state, on its own tier, for an update on the CPU
  };
  // Returns the slice that the optimizer updates. It is valid as long as `leases` live. If the
  // sub-group is not a full training range, only views and group are set. Requires reduced
  // gradients.
  optim::OptimizerSlice MakeSlice(const SubGroup& sub_group, SliceUse use,
                                  std::vector<Lease>* leases);
  // Stores the state of an updated slice, if MakeSlice has made the slice a copy of it (8-bit
  // state).
  void KeepState(const SubGroup& sub_group, const optim::OptimizerSlice& slice);
  // Lends a range of the updated weights, counted from start(), on their own tier: the masters, or
  // the parameters if there are no masters.
  Lease AcquireMastersOnOwnTier(const FlatRange& range) {
    return master_.defined() ? master_.AcquireOnOwnTier(range, Access::kUpdate)
                             : AcquireTarget(range, Access::kUpdate);
  }
  // Offloads the sub-group's tensors again. Requires that the sub-group's slice is gone.
  void Offload(const SubGroup& sub_group);
  // Waits until the offloaded tensors have been written.
  void Settle();

  // Starts sending the updated parameters to all ranks (FlatParameters::Publish). Collective.
  void Publish();
  // Offloads the masters and this rank's part of the parameters to their tiers; parameters that are
  // being gathered are skipped. Requires that no part lives.
  void Offload();

  // Appends the updated weights and the optimizer state of this rank, parameter by parameter.
  void AddShards(std::vector<checkpoint::TensorShard>* shards);
  // Call it after those weights have been written from outside: starts sending them to the
  // parameters of all ranks. Collective.
  void PublishWeights();

  // Move the tensors to host memory between steps, until MoveBack.
  void MoveStateToHost();
  void MoveMastersToHost() { master_.Release(); }
  void MoveBack();

 private:
  struct RangeState {
    TrainingRange of;
    FlatRange range;  // this rank's part of it, in the buffer
    // The range that the stores hold. In files it starts earlier, so that pages align with other
    // stores.
    FlatRange stored;
    bool may_be_split = false;
    std::span<const std::string_view> names;
    std::vector<Store> stores;  // in the order of `names`
    std::vector<Store> scales;  // scales of their blocks, for 8-bit state
    std::vector<Store> saved;   // values from before kTry
  };

  // Lends a range of the updated weights, counted from the first: the masters, or the parameters if
  // there are no masters.
  Lease AcquireWeights(const FlatRange& range, Access access) {
    return master_.defined() ? master_.Acquire(range, access) : AcquireTarget(range, access);
  }
  // Lends a range of the updated parameters.
  Lease AcquireTarget(const FlatRange& range, Access access);
  // Calls visit(range) for the full range, piece by piece if something is offloaded.
  template <typename Visit>
  void ForEachPiece(Visit visit);
  void OffloadWeights(const FlatRange& range);
  void AllocateSavedValues(StorageTier storage_tier);
  // Keep saves the values of the sub-group's part; Restore restores them.
  void Keep(const SubGroup& sub_group, const optim::OptimizerSlice& slice);
  void Restore(const SubGroup& sub_group, const optim::OptimizerSlice& slice);
  // Copies the parameters to the masters, or the masters to the parameters.
  void CopyWeights(bool to_masters);
  // Sets the part's state: the stores' memory, or fp32 copies of 8-bit state.
  void LendState(const SubGroup& sub_group, optim::OptimizerSlice* slice,
                 std::vector<Lease>* leases);
  // Returns the range of the sub-group's block scales.
  FlatRange ScalesOf(const SubGroup& sub_group) const;
  void AddScales(RangeState& state, std::vector<checkpoint::TensorShard>* shards);
  optim::OptimizerSlice MakeTarget(const SubGroup& sub_group, SliceUse use,
                                   std::vector<Lease>* leases);
  void Describe(const RangeState& state, optim::OptimizerSlice* slice) const;
  void MakeState(RangeState* state, StorageTier storage_tier);
  std::vector<optim::Segment> ListSegments(const FlatRange& range, const RangeState& state) const;

  const Context& context_;
  Bucket& bucket_;
  const std::int64_t first_parameter_;
  FlatRange own_;  // this rank's part of the buffer
  optim::FlatUpdate launch_ = nullptr;
  Store master_;
  Store saved_weights_;  // values from before kTry
  std::vector<RangeState> states_;
};

// A range of a bucket's layout in a checkpoint, under the names `<parameter><suffix>`.
struct CheckpointedRange {
  Store& store;
  FlatRange stored;  // in the layout: the range that the store holds
  FlatRange range;   // in the layout: the range to save, within `stored`
  std::string suffix;
  bool is_shard = false;  // this rank's shard; otherwise the full buffer
  // If set, the store holds elements of this dtype quantized to 8 bits.
  std::optional<at::ScalarType> quantized_from = {};
};

// Appends the range as shards of the bucket's parameters.
void AddShardsOf(const Context& context, const FlatParameters& parameters,
                 const CheckpointedRange& held, std::vector<checkpoint::TensorShard>* shards);

}  // namespace ds::zero
