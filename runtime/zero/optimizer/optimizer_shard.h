#pragma once

// OptimizerShard: master weights and the optimizer's state for what this rank updates of a bucket:
// its shard where the optimizer is sharded, otherwise all of it. State is kept by training range,
// as ranges may have state of different names.
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
  // ordinal of the bucket's first parameter among the trainable ones, `rest` where a shard of state
  // and masters rests. Requires a trainable bucket; it and the optimizer outlive this.
  OptimizerShard(const Context& context, Bucket& bucket, const optim::Optimizer& optimizer,
                 std::int64_t first_parameter, Rest rest);

  Bucket& bucket() const { return bucket_; }
  std::int64_t start() const { return own_.start; }  // in the bucket's buffer, of what it updates

  // Elements that are updated at once: this rank's of a training range, or a range of those.
  struct Turn {
    std::size_t state = 0;
    FlatRange range;  // of the buffer
  };
  // One for each training range, be it of nothing, or, where its optimizer lets it be cut, as many
  // of no more than `most_elements` each as it takes.
  std::vector<Turn> ListTurns(std::int64_t most_elements) const;
  // Begin to bring what a turn needs of what rests elsewhere: all of it, or all but the gradients.
  void Prefetch(const Turn& turn);
  void PrefetchState(const Turn& turn);
  enum class PartUse {
    kReview,  // optim::RankParts::for_each: parameters are read, and there is no narrow copy
    kUpdate,
    kDecided,  // the same, unless Update::decision says on the device that all stays as it is
    kTry,      // the same, and what is there is kept: requires Tiers::takes_back
    kRetry,    // kUpdate from what kTry has kept
    // Only, as Part::parameter, what of the parameters is updated: with the gradient, or without.
    kTarget,
    kTargetAlone,
    kBeside,  // the state where it lies, for the CPU, alone
  };
  // Makes the part that the optimizer updates, which is there as long as `leases` are. Where it is
  // not the whole of a training range, nothing but views and group are in it. Requires reduced
  // gradients.
  optim::Part MakePart(const Turn& turn, PartUse use, std::vector<Lease>* leases);
  // Keeps the state of a part that MakePart has made to be updated, where that was a copy of it.
  void KeepState(const Turn& turn, const optim::Part& part);
  // Takes a range of the weights that are updated, counted from start(): the masters, if there are
  // any, where they lie.
  Lease AcquireMastersWhereTheyLie(const FlatRange& range) {
    return master_.defined() ? master_.AcquireWhereItLies(range, Access::kUpdate)
                             : AcquireTarget(range, Access::kUpdate);
  }
  // Takes back what of the turn rests elsewhere. Requires that the turn's part is gone.
  void Stow(const Turn& turn);
  // Waits until that has been written.
  void Settle();

  // Begins to bring the updated parameters to all ranks (FlatParameters::Publish). Collective.
  void Publish();
  // Takes masters and this rank's part of the parameters to where they rest, the latter unless they
  // are on their way. Requires that no part lives.
  void Stow();

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
    FlatRange range;   // what this rank updates of it, in the buffer
    FlatRange stored;  // what the stores hold: in files it begins where a page of the others does
    bool may_be_cut = false;
    std::span<const std::string_view> names;
    std::vector<Store> stores;  // as they name it
    std::vector<Store> scales;  // of their blocks, where they are in 8 bits
    std::vector<Store> kept;    // the same before kTry
  };

  // A range of the weights that the optimizer updates, counted from the first: its own, or the
  // parameters.
  Lease AcquireWeights(const FlatRange& range, Access access) {
    return master_.defined() ? master_.Acquire(range, access) : AcquireTarget(range, access);
  }
  // Takes a range of what of the parameters is updated.
  Lease AcquireTarget(const FlatRange& range, Access access);
  // Calls visit(range) for all of it, range by range where something rests elsewhere.
  template <typename Visit>
  void ForEachPiece(Visit visit);
  void StowWeights(const FlatRange& range);
  void MakeRoomToKeep(Rest rest);
  // Keeps what the turn's part holds, or gives it back what was kept.
  void Keep(const Turn& turn, const optim::Part& part);
  void GiveBack(const Turn& turn, const optim::Part& part);
  // Makes masters of the parameters, or parameters of the masters.
  void CopyWeights(bool to_masters);
  // Gives the part its state: the stores', or copies of what is in 8 bits.
  void LendState(const Turn& turn, optim::Part* part, std::vector<Lease>* leases);
  FlatRange ScalesOf(const Turn& turn) const;  // of its blocks
  void AddScales(RangeState& state, std::vector<checkpoint::TensorShard>* shards);
  optim::Part MakeTarget(const Turn& turn, PartUse use, std::vector<Lease>* leases);
  void Describe(const RangeState& state, optim::Part* part) const;
  void MakeState(RangeState* state, Rest rest);
  std::vector<optim::Segment> ListSegments(const FlatRange& range, const RangeState& state) const;

  const Context& context_;
  Bucket& bucket_;
  const std::int64_t first_parameter_;
  FlatRange own_;  // what this rank updates of the buffer
  optim::FlatUpdate launch_ = nullptr;
  Store master_;
  Store kept_weights_;  // before kTry
  std::vector<RangeState> states_;
};

// A range of a bucket's layout as a checkpoint holds it, under the names `<parameter><suffix>`.
struct CheckpointedRange {
  Store& store;
  FlatRange stored;  // of the layout
  FlatRange range;   // of that
  std::string suffix;
  bool is_shard = false;  // this rank's; otherwise the whole buffer
  // The store has 8 bits each of elements of this dtype.
  std::optional<at::ScalarType> quantized_from = {};
};

// Appends the range as shards of the bucket's parameters.
void AddShardsOf(const Context& context, const FlatParameters& parameters,
                 const CheckpointedRange& held, std::vector<checkpoint::TensorShard>* shards);

}  // namespace ds::zero
