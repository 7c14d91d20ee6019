#include <utility>

#include "runtime/zero/store_source.h"
#include "runtime/zero/zenflow.h"

// A checkpoint holds this of ZenFlow beside the weights and the state of everything.

namespace ds::zero {
namespace {

constexpr std::string_view kMoments[] = {"/zenflow_exp_avg", "/zenflow_exp_avg_sq"};
constexpr std::string_view kGradient = "/zenflow_gradient";

}  // namespace

// The important columns side by side are a matrix of their own, which ranks hold as they hold the
// whole.
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

Status ZenFlow::ExpectState(const nlohmann::json& state) {
  if (beside_.valid()) beside_.get();  // what it makes is overwritten
  const auto wrong = [](const std::string& what) {
    return DataLossError("the state of ZenFlow " + what);
  };
  try {
    const bool selected = state.at("selected");
    std::vector<std::vector<std::int64_t>> chosen;
    for (const Matrix& matrix : matrices_) {
      std::vector<std::int64_t> columns;
      if (selected) state.at("columns").at(matrix.name).get_to(columns);
      for (std::size_t i = 0; i < columns.size(); ++i) {
        const std::int64_t least = i == 0 ? 0 : columns[i - 1] + 1;
        if (columns[i] >= least && columns[i] < matrix.columns) continue;
        return wrong("has columns that " + matrix.name + " does not have");
      }
      chosen.push_back(std::move(columns));
    }
    std::vector<ZenFlowSums> sums;
    for (const nlohmann::json& each : state.at("balance")) sums.push_back({each.at(0), each.at(1)});
    steps_ = state.at("waiting_steps");
    balance_.Load(state.at("balance_steps"), std::move(sums));
    for (std::size_t i = 0; i < matrices_.size(); ++i) matrices_[i].chosen = std::move(chosen[i]);
    is_selected_ = selected;
  } catch (const nlohmann::json::exception& error) {
    return wrong("cannot be read: " + std::string(error.what()));
  }
  for (Range& range : ranges_) {
    is_selected_ ? Place(&range, /*takes_weights=*/false) : Forget(&range);
  }
  return OkStatus();
}

}  // namespace ds::zero
