// The part of ZenFlow that selects the important columns and locates them on a rank.

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "runtime/comm/agreement.h"
#include "runtime/zero/optimizer/zenflow.h"

namespace ds::zero {
namespace {

using device::MemoryUse;

// Adds |values| to the sums of a matrix's columns; values[0] is element `start` of the matrix.
void AddToColumns(const at::Tensor& values, std::int64_t start, const at::Tensor& sums) {
  const std::int64_t columns = sums.numel(), end = start + values.numel();
  const at::Tensor sizes = values.to(at::kFloat).abs();
  for (std::int64_t at = start; at < end;) {
    const std::int64_t column = at % columns;
    const bool whole_rows = column == 0 && end - at >= columns;
    const std::int64_t rows = whole_rows ? (end - at) / columns : 1;
    const std::int64_t width = std::min(columns - column, end - at);
    const at::Tensor some = sizes.narrow(0, at - start, rows * width).view({rows, width});
    sums.narrow(0, column, width).add_(some.sum(0));
    at += rows * width;
  }
}

// Returns the number of important elements of a matrix before element `at`.
std::int64_t CountBefore(std::int64_t at, std::int64_t columns,
                         const std::vector<std::int64_t>& chosen) {
  const auto in_row = std::lower_bound(chosen.begin(), chosen.end(), at % columns);
  return at / columns * static_cast<std::int64_t>(chosen.size()) + (in_row - chosen.begin());
}

}  // namespace

void ZenFlow::MakePlaces(Range* range) {
  std::vector<std::int64_t> places;
  for (const Part& part : range->parts) {
    const Piece& piece = part.piece;
    const std::int64_t start = piece.parameter_start, end = start + piece.count;
    const auto add = [&](std::int64_t element) {
      if (element >= start && element < end) places.push_back(piece.range_start + element - start);
    };
    if (part.matrix < 0) {
      for (std::int64_t i = start; i < end; ++i) add(i);
      continue;
    }
    const Matrix& matrix = matrices_[static_cast<std::size_t>(part.matrix)];
    for (std::int64_t row = start / matrix.columns; row * matrix.columns < end; ++row) {
      for (const std::int64_t column : matrix.chosen) add(row * matrix.columns + column);
    }
  }
  range->count = static_cast<std::int64_t>(places.size());
  range->places = at::tensor(places, at::kLong);
  PutPlaces(range, context_.device, context_.tier());
}

void ZenFlow::PutPlaces(Range* range, at::Device device, device::MemoryTier tier) const {
  if (!range->places.defined()) return;
  range->places = range->places.to(device);
  range->booked = device::LedgerEntry(context_.ledger, MemoryUse::kOptimizerState, tier,
                                      static_cast<std::int64_t>(range->places.nbytes()));
}

ZenFlow::ImportantPiece ZenFlow::FindImportant(const Part& part) const {
  const Piece& piece = part.piece;
  if (part.matrix < 0) {
    return {.shape = part.shape, .start = piece.parameter_start, .count = piece.count};
  }
  const Matrix& matrix = matrices_[static_cast<std::size_t>(part.matrix)];
  const auto before = [&](std::int64_t at) {
    return CountBefore(at, matrix.columns, matrix.chosen);
  };
  const std::int64_t start = before(piece.parameter_start);
  return {.shape = {part.shape.at(0), static_cast<std::int64_t>(matrix.chosen.size())},
          .start = start,
          .count = before(piece.parameter_start + piece.count) - start};
}

void ZenFlow::Forget(Range* range) {
  range->places = at::Tensor();
  range->booked = {};
  range->count = 0;
  range->weights = {};
  for (Store& store : range->moments) store = {};
}

// Moments start at zero, weights at the masters' values.
void ZenFlow::Place(Range* range, bool takes_weights) {
  MakePlaces(range);
  const bool away = config_.offload && !context_.device.is_cpu();
  for (Store& store : range->moments) {
    store = Store(context_, {range->padded(), c10::kFloat, MemoryUse::kOptimizerState,
                             away ? Rest::kHost : Rest::kHere});
    store.Zero();
    store.Stow();
  }
  if (!context_.dtypes.has_master_weights()) return;
  range->weights = Store(
      context_, {range->padded(), context_.dtypes.master, MemoryUse::kMasterWeights, Rest::kHere});
  if (!takes_weights) return;
  const Lease masters = AcquireRestWeights(*range);
  range->weights.Acquire(Access::kOverwrite).tensor().copy_(Gather(masters.tensor(), *range));
}

void ZenFlow::Select() {
  TakeOver();  // published with the other changes of the step
  WriteBack();
  const at::Tensor sums =
      at::zeros({columns_}, at::TensorOptions(at::kFloat).device(context_.device));
  for (const Range& range : ranges_) {
    const Lease gradient = range.shard->bucket().gradients().for_optimizer(range.own);
    for (const Part& part : range.parts) {
      if (part.matrix < 0) continue;
      const Matrix& matrix = matrices_[static_cast<std::size_t>(part.matrix)];
      AddToColumns(gradient.tensor().narrow(0, part.piece.range_start, part.piece.count),
                   part.piece.parameter_start, sums.narrow(0, matrix.first_sum, matrix.columns));
    }
  }
  if (context_.sharding.optimizer && columns_ > 0) {
    context_.groups.shards->AllReduce(sums, comm::ReduceOp::kSum, "importance of columns");
  }
  const at::Tensor host = sums.to(at::kCPU);
  const float* const first = host.const_data_ptr<float>();
  for (Matrix& matrix : matrices_) {
    const float* const own = first + matrix.first_sum;
    matrix.chosen = ChooseColumns({own, own + matrix.columns}, config_.topk_ratio);
  }
  for (Range& range : ranges_) Place(&range, /*takes_weights=*/true);
  is_selected_ = true;
}

std::vector<ZenFlowSums> ZenFlow::MeasureMatrices(double scale) const {
  std::vector<double> own(2 * matrices_.size(), 0.0);
  for (const Range& range : ranges_) {
    const Lease lease = range.shard->bucket().gradients().for_optimizer(range.own);
    const at::Tensor sizes = lease.tensor().to(at::kFloat).abs();
    const at::Tensor important = at::zeros_like(sizes);
    important.index_copy_(0, range.places, sizes.index_select(0, range.places));
    for (const Part& part : range.parts) {
      if (part.matrix < 0) continue;
      const auto sum = [&](const at::Tensor& values) {
        return scale * values.narrow(0, part.piece.range_start, part.piece.count)
                           .sum(at::kDouble)
                           .item<double>();
      };
      const auto i = 2 * static_cast<std::size_t>(part.matrix);
      own[i] += sum(important);
      own[i + 1] += sum(sizes);
    }
  }
  std::vector<ZenFlowSums> sums(matrices_.size());
  const auto add = [&](const std::vector<double>& rank) {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i].important += rank[2 * i];
      sums[i].rest += rank[2 * i + 1] - rank[2 * i];
    }
  };
  if (!context_.sharding.optimizer) {
    add(own);
  } else {
    for (const auto& rank : comm::GatherNumbers(own, *context_.groups.shards)) add(rank);
  }
  return sums;
}

}  // namespace ds::zero
