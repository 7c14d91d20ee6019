#pragma once

// ZenFlow: the update of a step where it is not the same for all parameters (DeepSpeed's
// zero_optimization.zenflow; plan/zenflow_schedule.h says when and which). The important columns of
// matrices, and all that is no matrix, have weights and moments of their own where the model is,
// and are updated in every step. All gradients are added up in the tier of the optimizer's state,
// which updates everything by their mean when that is due; the important columns do not take it.
//
//   for each shard: zenflow.Add(shard)     then zenflow.WeightsWereWritten()
//   zenflow.Step(update)                   in place of ShardedOptimizer's own
//
// With overlap_step that update runs on a thread of its own, on the CPU, on Tiers::update_thread
// if there is one, and what comes of it is taken over when the next one is due: it is an interval
// late. No other thread touches the masters, the state and the gradients of that interval
// meanwhile. Settle ends it early.
//
// A gradient is scaled (clipped, unscaled) by its own step's factor before anything is made of it.
// The bits do not depend on how the state is cut, but for column sums that are equal within
// rounding.
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
  // The owner of the state in checkpoints.
  static constexpr std::string_view kName = "ZenFlow Adam";

  // All are borrowed. Requires an optimizer of Reach::kElement that keeps two values.
  ZenFlow(const Context& context, const config::ZenFlowConfig& config, optim::Optimizer& optimizer);
  ~ZenFlow();  // waits for the update beside
  // In the model's order, before the first step.
  void Add(OptimizerShard& shard);

  // Requires reduced gradients. Begins to publish what has changed.
  void Step(const optim::Update& update);
  // Takes over what is being updated beside the training. Nothing where nothing is.
  void Settle();
  // Has the weights that a checkpoint reads be the latest. On this rank alone.
  void WriteBack();
  // Those have been written from outside: goes on from them.
  void WeightsWereWritten();

  // Takes what rests here of a kind to host memory, and all back. Requires a settled update.
  void MoveToHost(StateKind kind);
  void MoveBack();

  // Gradients that wait, and the moments of the important columns.
  void AddShards(std::vector<checkpoint::TensorShard>* shards);
  nlohmann::json State() const;
  // Tells whether a state can be that of these matrices.
  Status CheckState(const nlohmann::json& state) const;
  // Makes room for the columns of a state, which CheckState has taken: their tensors come next.
  void ExpectState(const nlohmann::json& state);

 private:
  // A 2-D parameter of the model, the same list on every rank.
  struct Matrix {
    std::string name;
    std::int64_t columns = 0;
    std::int64_t first_sum = 0;             // of its columns among those of all matrices
    std::vector<std::int64_t> chosen = {};  // ascending
  };
  // A piece of a parameter that lies in this rank's range.
  struct Part {
    Piece piece;
    std::vector<std::int64_t> shape;
    int matrix = -1;  // none: all of it is important
  };
  // Its important elements among those of the parameter, which have this shape.
  struct ImportantPiece {
    std::vector<std::int64_t> shape;
    std::int64_t start = 0;
    std::int64_t count = 0;
  };
  // A training range, or this rank's share of it, which is updated at once.
  struct Range {
    OptimizerShard* shard;
    OptimizerShard::Turn turn;
    FlatRange own;  // of the shard's stores
    std::size_t shard_index;
    std::vector<Part> parts;
    // The important elements: their places in the range, ascending, and what is kept of them.
    at::Tensor places = {};
    device::LedgerEntry booked = {};
    std::int64_t count = 0;
    // Vector loops over them have no remainder, as over shards.
    std::int64_t padded() const {
      return (count / FlatLayout::kShardMultiple + 1) * FlatLayout::kShardMultiple;
    }
    Store weights = {};  // where there are masters; else they are in the parameters
    Store moments[2] = {};
    at::Tensor updated = {};  // their weights behind this step's update
  };
  struct Waiting {
    OptimizerShard* shard;
    Store gradients[2];  // the sum of this interval's, and that of the one before, in use beside
    Store weights = {};  // overlap_step without masters: what the update beside updates
  };

  struct Read;
  StatusOr<Read> ReadState(const nlohmann::json& state) const;
  std::vector<int> AddMatrices(const FlatParameters& parameters);
  void Select();
  void Place(Range* range, bool takes_weights);
  void MakePlaces(Range* range);
  void PutPlaces(Range* range, at::Device device, device::MemoryTier tier) const;
  void Forget(Range* range);
  ImportantPiece FindImportant(const Part& part) const;
  std::vector<ZenFlowSums> MeasureMatrices(double scale) const;
  void AddGradients(const optim::Update& update);
  void UpdateImportant(const optim::Update& update, Range* range);
  void UpdateRest(const optim::Update& update);
  void UpdateRestOf(Range* range, const optim::Update& mean);
  void UpdateRestBeside(const optim::Update& update);
  void TakeOver();
  Lease AcquireRestWeights(Range& range);
  at::Tensor Gather(const at::Tensor& from, const Range& range) const;
  void Scatter(const Range& range, const at::Tensor& values, const at::Tensor& to) const;

  const Context& context_;
  const config::ZenFlowConfig config_;
  optim::Optimizer& optimizer_;
  optim::FlatUpdate launch_;
  std::vector<Matrix> matrices_;
  std::int64_t columns_ = 0;  // of all matrices
  std::vector<Range> ranges_;
  std::vector<Waiting> waiting_;  // by shard
  bool is_selected_ = false;      // columns have been chosen
  std::int64_t steps_ = 0;        // whose gradients wait
  int current_ = 0;               // Waiting::gradients that they are in
  ZenFlowBalance balance_;
  std::future<void> beside_;
};

}  // namespace ds::zero
