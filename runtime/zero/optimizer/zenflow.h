#pragma once

// ZenFlow: an update that treats parameters differently (DeepSpeed's zero_optimization.zenflow;
// plan/zero/zenflow_schedule.h defines the schedule). The important columns of matrices, and all
// non-matrix parameters, have their own weights and moments, and are updated on the model's device
// in every step. All gradients are accumulated on the tier of the optimizer state. When the
// schedule requires it, their mean updates everything there; the important columns ignore that
// update.
//
//   for each shard: zenflow.Add(shard)     then zenflow.WeightsWereWritten()
//   zenflow.Step(update)                   in place of ShardedOptimizer's own
//
// With overlap_step the second update runs on the CPU in a separate thread (Tiers::update_thread if
// there is one). Its result is applied when the next one is due, one interval late. No other thread
// touches the masters, the state and the gradients of that interval meanwhile. Settle applies it
// early.
//
// A gradient is first scaled (clipped, unscaled) by its own step's factor. Results are
// bit-identical for every sharding of the state, unless column sums are equal within rounding.
//
// Threads: one thread at a time. Collective: Step, Settle.

#include <cstdint>
#include <future>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/stateful.h"
#include "runtime/optim/optimizer.h"
#include "runtime/plan/zero/zenflow_schedule.h"
#include "runtime/zero/optimizer/optimizer_shard.h"
#include "runtime/zero/state_kind.h"

namespace ds::zero {

class ZenFlow {
 public:
  // The optimizer name under which checkpoints store the state.
  static constexpr std::string_view kName = "ZenFlow Adam";

  // All arguments must outlive this object. Requires an optimizer of Reach::kElement with two state
  // values per element.
  ZenFlow(const Context& context, const config::ZenFlowConfig& config, optim::Optimizer& optimizer);
  ~ZenFlow();  // waits for the background update
  // Registers a shard. Call it for all shards in model order, before the first step.
  void Add(OptimizerShard& shard);

  // Requires reduced gradients. Starts publishing the changed parameters.
  void Step(const optim::Update& update);
  // Applies the result of the running background update. Does nothing if there is none.
  void Settle();
  // Writes the latest weights to the stores that a checkpoint reads. Local to this rank.
  void WriteBack();
  // Call it after those stores have been written from outside: continues from the new weights.
  void WeightsWereWritten();

  // Moves the tensors of one kind that are on this device to host memory; MoveBack moves all back.
  // Requires that no background update is running.
  void MoveToHost(StateKind kind);
  void MoveBack();

  // Appends the accumulated gradients and the moments of the important columns.
  void AddShards(std::vector<checkpoint::TensorShard>* shards);
  nlohmann::json State() const;
  // Returns OK if the state can belong to these matrices.
  Status CheckState(const nlohmann::json& state) const;
  // Allocates the columns of a state that CheckState has accepted. Their tensors are loaded next.
  void ExpectState(const nlohmann::json& state);

 private:
  // A 2-D parameter of the model. The list of matrices is the same on every rank.
  struct Matrix {
    std::string name;
    std::int64_t columns = 0;
    std::int64_t first_sum = 0;             // index of its first column among all matrices' columns
    std::vector<std::int64_t> chosen = {};  // the important columns, ascending
  };
  // A piece of a parameter within this rank's range.
  struct ParameterPiece {
    Piece piece;
    std::vector<std::int64_t> shape;
    int matrix = -1;  // -1: not a matrix, so all of it is important
  };
  // The position of its important elements in the parameter's important elements, which have this
  // shape.
  struct ImportantPiece {
    std::vector<std::int64_t> shape;
    std::int64_t start = 0;
    std::int64_t count = 0;
  };
  // A training range, or this rank's part of it, that is updated at once.
  struct Range {
    OptimizerShard* shard;
    OptimizerShard::SubGroup sub_group;
    FlatRange own;  // in the shard's stores
    std::size_t shard_index;
    std::vector<ParameterPiece> parts;
    // The important elements: their indices in the range, ascending, and their own state.
    at::Tensor indices = {};
    device::LedgerEntry booked = {};
    std::int64_t count = 0;
    // The count, padded so that vector loops have no remainder, as for shards.
    std::int64_t padded() const {
      return (count / FlatLayout::kShardMultiple + 1) * FlatLayout::kShardMultiple;
    }
    Store weights = {};  // with masters; otherwise they are in the parameters
    Store moments[2] = {};
    at::Tensor updated = {};  // their weights after this step's update
  };
  struct AccumulatedShard {
    OptimizerShard* shard;
    // The sum of this interval, and the sum of the previous one, which the background update uses.
    Store gradients[2];
    // With overlap_step and without masters: the weights that the background update changes.
    Store weights = {};
  };

  struct Read;
  StatusOr<Read> ReadState(const nlohmann::json& state) const;
  std::vector<int> AddMatrices(const FlatParameters& parameters);
  void Select();
  void AllocateRange(Range* range, bool takes_weights);
  void MakeIndices(Range* range);
  void PutIndices(Range* range, at::Device device, device::MemoryTier tier) const;
  void Forget(Range* range);
  ImportantPiece FindImportant(const ParameterPiece& part) const;
  std::vector<ZenFlowSums> MeasureMatrices(double scale) const;
  void AddGradients(const optim::Update& update);
  void UpdateImportant(const optim::Update& update, Range* range);
  void UpdateUnselected(const optim::Update& update);
  void UpdateUnselectedOf(Range* range, const optim::Update& mean);
  void UpdateUnselectedOverlapped(const optim::Update& update);
  void TakeOver();
  Lease AcquireUnselectedWeights(Range& range);
  at::Tensor Gather(const at::Tensor& from, const Range& range) const;
  void Scatter(const Range& range, const at::Tensor& values, const at::Tensor& to) const;

  const Context& context_;
  const config::ZenFlowConfig config_;
  optim::Optimizer& optimizer_;
  optim::FlatUpdate launch_;
  std::vector<Matrix> matrices_;
  std::int64_t columns_ = 0;  // of all matrices
  std::vector<Range> ranges_;
  std::vector<AccumulatedShard> waiting_;  // by shard
  bool is_selected_ = false;               // columns have been selected
  std::int64_t steps_ = 0;                 // number of accumulated steps
  int current_ = 0;  // index in AccumulatedShard::gradients of the current sum
  ZenFlowBalance balance_;
  std::future<void> overlapped_update_;
};

}  // namespace ds::zero
