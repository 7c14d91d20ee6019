#include <utility>

#include "runtime/zero/optimizer/zenflow.h"
#include "runtime/zero/storage/store_source.h"

// The part of ZenFlow that serves checkpoints and moves to the host: state in addition to the
// weights and the optimizer state.

namespace ds::zero {
namespace {

constexpr std::string_view kMoments[] = {"/zenflow_exp_avg", "/zenflow_exp_avg_sq"};
constexpr std::string_view kGradient = "/zenflow_gradient";

}  // namespace

void ZenFlow::MoveToHost(StateKind kind) {
  const bool masters = kind == StateKind::kHpParams;
  if (!masters && kind != StateKind::kOptimStates) return;
  for (Range& range : ranges_) {
    if (masters) {
      range.weights.Release();
      continue;
    }
    for (Store& store : range.moments) store.Release();
    PutPlaces(&range, at::kCPU, device::MemoryTier::kHost);
  }
  for (Waiting& waiting : waiting_) {
    if (masters) {
      waiting.weights.Release();
      continue;
    }
    for (Store& store : waiting.gradients) store.Release();
  }
}

// Offloaded stores stay offloaded between steps.
void ZenFlow::MoveBack() {
  const auto move = [](Store& store) {
    if (!store.rests_away()) store.Prefetch();
  };
  for (Range& range : ranges_) {
    for (Store& store : range.moments) move(store);
    move(range.weights);
    PutPlaces(&range, context_.device, context_.tier());
  }
  for (Waiting& waiting : waiting_) {
    for (Store& store : waiting.gradients) move(store);
    move(waiting.weights);
  }
}

// The important columns of a matrix form a matrix of their own, sharded among ranks like the
// original.
void ZenFlow::AddShards(std::vector<checkpoint::TensorShard>* shards) {
  const bool sharded = context_.sharding.optimizer;
  for (Range& range : ranges_) {
    const FlatParameters& parameters = range.shard->bucket().parameters();
    Store& sum = waiting_[range.shard_index].gradients[current_];
    const FlatRange stored{range.shard->start(),
                           range.shard->bucket().gradients().optimizer_range().count};
    AddShardsOf(context_, parameters,
                {sum, stored, range.turn.range, std::string(kGradient), sharded}, shards);
    if (!range.places.defined()) continue;
    std::int64_t first = 0;
    for (const Part& part : range.parts) {
      const NamedParameter& parameter = parameters.parameter(part.piece.parameter);
      const ImportantPiece piece = FindImportant(part);
      checkpoint::Placement placement = parameter.placement;
      placement.global_shape = piece.shape;
      const auto axes = sharded ? context_.ShardCopyAxes(parameter.placement)
                                : context_.WholeCopyAxes(parameter.placement);
      for (std::size_t i = 0; i < 2; ++i) {
        shards->push_back({.name = parameter.name + std::string(kMoments[i]),
                           .placement = placement,
                           .flat_start = piece.start,
                           .source = SourceOf(range.moments[i], {first, piece.count}),
                           .replica = context_.ReplicaOf(parameter.placement, axes)});
      }
      first += piece.count;
    }
  }
}

nlohmann::json ZenFlow::State() const {
  nlohmann::json columns = nlohmann::json::object(), sums = nlohmann::json::array();
  for (const Matrix& matrix : matrices_) {
    if (!matrix.chosen.empty()) columns[matrix.name] = matrix.chosen;
  }
  for (const ZenFlowSums& each : balance_.sums()) {
    sums.push_back({each.important, each.rest});
  }
  return {{"columns", columns},
          {"selected", is_selected_},
          {"waiting_steps", steps_},
          {"balance_steps", balance_.steps()},
          {"balance", sums}};
}

// The contents of a checkpoint besides the tensors.
struct ZenFlow::Read {
  bool selected = false;
  std::vector<std::vector<std::int64_t>> chosen;  // of each matrix
  std::int64_t waiting_steps = 0;
  std::int64_t balance_steps = 0;
  std::vector<ZenFlowSums> balance;
};

StatusOr<ZenFlow::Read> ZenFlow::ReadState(const nlohmann::json& state) const {
  const auto wrong = [](const std::string& what) {
    return DataLossError("the state of ZenFlow " + what);
  };
  try {
    Read read{.selected = state.at("selected"),
              .chosen = {},
              .waiting_steps = state.at("waiting_steps"),
              .balance_steps = state.at("balance_steps"),
              .balance = {}};
    for (const Matrix& matrix : matrices_) {
      std::vector<std::int64_t>& columns = read.chosen.emplace_back();
      if (read.selected) state.at("columns").at(matrix.name).get_to(columns);
      for (std::size_t i = 0; i < columns.size(); ++i) {
        const std::int64_t least = i == 0 ? 0 : columns[i - 1] + 1;
        if (columns[i] >= least && columns[i] < matrix.columns) continue;
        return wrong("has columns that " + matrix.name + " does not have");
      }
    }
    for (const nlohmann::json& each : state.at("balance")) {
      read.balance.push_back({each.at(0), each.at(1)});
    }
    return read;
  } catch (const nlohmann::json::exception&) {
    return wrong("has a value that is missing or of another type");
  }
}

Status ZenFlow::CheckState(const nlohmann::json& state) const {
  const StatusOr<Read> read = ReadState(state);
  return read.ok() ? OkStatus() : read.status();
}

void ZenFlow::ExpectState(const nlohmann::json& state) {
  if (beside_.valid()) beside_.get();  // its result will be overwritten
  Read read = ReadState(state).value();
  steps_ = read.waiting_steps;
  balance_.Load(read.balance_steps, std::move(read.balance));
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    matrices_[i].chosen = std::move(read.chosen[i]);
  }
  is_selected_ = read.selected;
  for (Range& range : ranges_) {
    is_selected_ ? Place(&range, /*takes_weights=*/false) : Forget(&range);
  }
}

}  // namespace ds::zero
