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
  // ordinal of the bucket's first parameter among the trainable ones. `rest` is the tier that
  // stores sharded state and masters. Requires a trainable bucket. The context, bucket and
  // optimizer must outlive this object.
  OptimizerShard(const Context& context, Bucket& bucket, const optim::Optimizer& optimizer,
                 std::int64_t first_parameter, Rest rest);

  Bucket& bucket() const { return bucket_; }
  // Start of the updated part in the bucket's buffer.
  std::int64_t start() const { return own_.start; }

  // A sub-group: elements updated in one step, this rank's part of a training range or a piece of
  // it.
  struct Turn {
    std::size_t state = 0;
    FlatRange range;  // in the buffer
  };
  // Returns one sub-group for each training range, even an empty one. If the optimizer allows it, a
  // range is split into sub-groups of at most `most_elements` elements.
  std::vector<Turn> ListTurns(std::int64_t most_elements) const;
  // Start loading the offloaded tensors that a sub-group needs: all of them, or all but the
  // gradients.
  void Prefetch(const Turn& turn);
  void PrefetchState(const Turn& turn);
  enum class PartUse {
    // For optim::RankParts::for_each: parameters are read, and there is no low-precision copy.
    kReview,
    kUpdate,
    kDecided,  // kUpdate, but Update::decision on the device may skip it
    kTry,      // kUpdate, and saves the old values: requires Tiers::takes_back
    kRetry,    // kUpdate, starting from the values that kTry saved
    // Only the updated parameters, as Part::parameter: with the gradient, or without it.
    kTarget,
    kTargetAlone,
    kBeside,  // only the state, on its own tier, for an update on the CPU
  };
  // Returns the part that the optimizer updates. It is valid as long as `leases` live. If the
  // sub-group is not a full training range, only views and group are set. Requires reduced
  // gradients.
  optim::Part MakePart(const Turn& turn, PartUse use, std::vector<Lease>* leases);
  // Stores the state of an updated part, if MakePart has made the part a copy of it (8-bit state).
  void KeepState(const Turn& turn, const optim::Part& part);
  // Lends a range of the updated weights, counted from start(), on their own tier: the masters, or
  // the parameters if there are no masters.
  Lease AcquireMastersWhereTheyLie(const FlatRange& range) {
    return master_.defined() ? master_.AcquireWhereItLies(range, Access::kUpdate)
                             : AcquireTarget(range, Access::kUpdate);
  }
  // Offloads the sub-group's tensors again. Requires that the sub-group's part is gone.
  void Stow(const Turn& turn);
  // Waits until the offloaded tensors have been written.
  void Settle();

  // Starts sending the updated parameters to all ranks (FlatParameters::Publish). Collective.
  void Publish();
  // Offloads the masters and this rank's part of the parameters to their tiers; parameters that are
  // being gathered are skipped. Requires that no part lives.
  void Stow();

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
    bool may_be_cut = false;
    std::span<const std::string_view> names;
    std::vector<Store> stores;  // in the order of `names`
    std::vector<Store> scales;  // scales of their blocks, for 8-bit state
    std::vector<Store> kept;    // values from before kTry
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
  void StowWeights(const FlatRange& range);
  void MakeRoomToKeep(Rest rest);
  // Keep saves the values of the sub-group's part; GiveBack restores them.
  void Keep(const Turn& turn, const optim::Part& part);
  void GiveBack(const Turn& turn, const optim::Part& part);
  // Copies the parameters to the masters, or the masters to the parameters.
  void CopyWeights(bool to_masters);
  // Sets the part's state: the stores' memory, or fp32 copies of 8-bit state.
  void LendState(const Turn& turn, optim::Part* part, std::vector<Lease>* leases);
  // Returns the range of the sub-group's block scales.
  FlatRange ScalesOf(const Turn& turn) const;
  void AddScales(RangeState& state, std::vector<checkpoint::TensorShard>* shards);
  optim::Part MakeTarget(const Turn& turn, PartUse use, std::vector<Lease>* leases);
  void Describe(const RangeState& state, optim::Part* part) const;
  void MakeState(RangeState* state, Rest rest);
  std::vector<optim::Segment> ListSegments(const FlatRange& range, const RangeState& state) const;

  const Context& context_;
  Bucket& bucket_;
  const std::int64_t first_parameter_;
  FlatRange own_;  // this rank's part of the buffer
  optim::FlatUpdate launch_ = nullptr;
  Store master_;
  Store kept_weights_;  // values from before kTry
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
