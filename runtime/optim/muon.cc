#include "runtime/optim/muon.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "runtime/config/muon_memory.h"
#include "runtime/optim/kernels/flat_update.h"

namespace ds::optim {
namespace {

// Each Newton-Schulz iteration maps a singular value s to kA s + kB s^3 + kC s^5. These
// coefficients have a steep slope at zero, so that small values grow in few iterations; values then
// stay near 1 but do not converge to it.
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr int kIterations = 5;
// Before this iteration the Gram iteration restarts from its iterate, which is better conditioned
// than X. In fp16 the rounding errors of R would otherwise grow too large.
constexpr int kRestart = 2;

at::Tensor IterateOnMatrix(at::Tensor x) {
  for (int i = 0; i < kIterations; ++i) {
    const at::Tensor a = at::matmul(x, x.t());
    const at::Tensor b = at::addmm(a, a, a, kB, kC);
    x = at::addmm(x, b, x, kA, 1.0);
  }
  return x;
}

// Iterates on the Gram matrix R = X X^T, which is small if X is wide: every iterate is Q X, where Q
// is a polynomial of R.
at::Tensor IterateOnGram(at::Tensor x) {
  at::Tensor gram = at::matmul(x, x.t());
  at::Tensor q;
  for (int i = 0; i < kIterations; ++i) {
    if (i == kRestart) {
      x = at::matmul(q, x);
      gram = at::matmul(x, x.t());
      q = at::Tensor();
    }
    const at::Tensor z = at::addmm(gram, gram, gram, kB, kC);
    if (q.defined()) {
      q = at::addmm(q, z, q, kA, 1.0);
    } else {
      q = z.clone();
      q.diagonal().add_(kA);
    }
    if (i + 1 < kIterations && i + 1 != kRestart) {
      const at::Tensor rz = at::addmm(gram, z, gram, kA, 1.0);
      gram = at::addmm(rz, z, rz, kA, 1.0);
    }
  }
  return at::matmul(q, x);
}

struct Matrix {
  std::int64_t start = 0;  // in the unsharded buffer
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  // Returns a number proportional to the operations of an iteration.
  double work() const {
    return static_cast<double>(rows) * static_cast<double>(columns) *
           static_cast<double>(std::min(rows, columns));
  }
};

// Returns the parameter's matrices. The first of three dimensions counts matrices. Four or more
// dimensions are a convolution: each row of its one matrix is a filter.
std::vector<Matrix> MatricesOf(const FullParameter& parameter) {
  const auto& shape = parameter.shape;
  const std::int64_t count = shape.size() == 3 ? shape[0] : 1;
  const std::int64_t rows = shape.size() == 3 ? shape[1] : shape[0];
  std::int64_t numel = 1;
  for (const std::int64_t size : shape) numel *= size;
  std::vector<Matrix> matrices;
  for (std::int64_t i = 0; i < count && numel > 0; ++i) {
    matrices.push_back({parameter.start + i * (numel / count), rows, numel / count / rows});
  }
  return matrices;
}

// Returns the tag of the slice's collectives.
std::string_view TagOf(const OptimizerSlice& slice) {
  if (slice.full_parameters.empty()) return {};
  return slice.full_parameters.front().name;
}

}  // namespace

bool IsMuonMatrix(std::string_view name, at::IntArrayRef shape) {
  return shape.size() >= 2 && config::IsMuonName(name);
}

ParameterGrouper WithMuonMatrices(ParameterGrouper inner) {
  return
      [inner = std::move(inner)](int block, const std::string& name, const at::Tensor& parameter) {
        ParameterGroup group = inner(block, name, parameter);
        group.muon = IsMuonMatrix(name, parameter.sizes());
        return group;
      };
}

at::Tensor FindOrthogonal(const at::Tensor& matrix, config::NewtonSchulz method) {
  const bool gram = method == config::NewtonSchulz::kGram;
  const bool tall = matrix.size(0) > matrix.size(1);
  const at::Tensor wide = tall ? matrix.t() : matrix;
  const at::Tensor length = at::linalg_vector_norm(wide).add_(1e-7);
  const at::ScalarType type = matrix.is_cpu() ? at::kFloat : gram ? at::kHalf : at::kBFloat16;
  at::Tensor x = wide.div(length).to(type);
  const at::Tensor result = gram && wide.size(0) < wide.size(1) ? IterateOnGram(std::move(x))
                                                                : IterateOnMatrix(std::move(x));
  return (tall ? result.t() : result).to(matrix.scalar_type());
}

std::span<const std::string_view> Muon::state_names(const ParameterGroup& group) const {
  static constexpr std::string_view kNames[] = {"momentum_buffer"};
  return group.muon ? std::span<const std::string_view>(kNames) : adam_.state_names(group);
}

void Muon::Begin(const Update& update, const RankSlices& all) {
  static_cast<void>(update);
  shards_ = all.groups.shards;
  ledger_ = all.ledger;
  work_.assign(static_cast<std::size_t>(shards_->size()), 0.0);
}

void Muon::ApplyRates(const SliceRates& rates, const OptimizerSlice& slice) {
  if (slice.group.muon) return ApplyToMatrices(rates, slice);
  // A cyclic schedule changes Muon's momentum, but not AdamW's beta1.
  SliceRates for_adam = rates;
  for_adam.beta1 = config_.adam.beta1;
  adam_.ApplyRates(for_adam, slice);
}

at::Tensor Muon::UpdateMomentum(const SliceRates& rates, const OptimizerSlice& slice) {
  const MuonCoefficients c{.gradient_scale = static_cast<float>(rates.gradient_scale),
                           .one_minus_momentum = static_cast<float>(1.0 - rates.beta1)};
  OptimizerSlice target = slice;
  target.parameter = at::empty_like(slice.parameter);
  target.published = at::Tensor();
  UpdateSlice(MuonMomentumOp{c}, target);
  return target.parameter;
}

// Gathers all ranks' views into the unsharded buffer. A rank with views that are only a part of its
// shard pads them with zeros, because an all-gather needs equal lengths.
at::Tensor Muon::GatherFull(const at::Tensor& views, const OptimizerSlice& slice) {
  const std::int64_t shard_numel = slice.full_numel / shards_->size();
  at::Tensor shard = views;
  if (views.numel() != shard_numel) {
    shard = at::zeros({shard_numel}, views.options());
    shard.narrow(0, slice.full_start - shards_->rank() * shard_numel, views.numel()).copy_(views);
  }
  at::Tensor full = at::empty({slice.full_numel}, views.options());
  shards_->AllGather(full, shard, TagOf(slice));
  return full;
}

// Sums `result` over the ranks and returns this rank's views of the sum.
at::Tensor Muon::SumOverRanks(const at::Tensor& result, const OptimizerSlice& slice) {
  if (!slice.sharded) {
    if (shards_->size() > 1) shards_->AllReduce(result, comm::ReduceOp::kSum, TagOf(slice));
    return result;
  }
  const std::int64_t shard_numel = slice.full_numel / shards_->size();
  at::Tensor shard = result;  // all of it is the shard of a single rank
  if (shards_->size() > 1) {
    shard = at::empty({shard_numel}, result.options());
    shards_->ReduceScatter(shard, result, comm::ReduceOp::kSum, TagOf(slice));
  }
  return shard.narrow(0, slice.full_start - shards_->rank() * shard_numel, slice.parameter.numel());
}

// Each matrix is assigned to the rank with the least work so far. All ranks compute the same
// assignment, so they need not communicate it. A rank leaves the other ranks' matrices zero.
at::Tensor Muon::Orthogonalise(const at::Tensor& views, const OptimizerSlice& slice) {
  const at::Tensor full = slice.sharded ? GatherFull(views, slice) : views;
  const std::int64_t start = slice.sharded ? 0 : slice.full_start;
  const at::Tensor result = at::zeros({full.numel()}, views.options());
  for (const FullParameter& parameter : slice.full_parameters) {
    for (const Matrix& matrix : MatricesOf(parameter)) {
      const auto least = std::min_element(work_.begin(), work_.end());
      *least += matrix.work();
      if (least - work_.begin() != shards_->rank()) continue;
      const auto view = [&](const at::Tensor& flat) {
        return flat.narrow(0, matrix.start - start, matrix.rows * matrix.columns)
            .view({matrix.rows, matrix.columns});
      };
      const double scale = std::sqrt(
          std::max(1.0, static_cast<double>(matrix.rows) / static_cast<double>(matrix.columns)));
      view(result).copy_(FindOrthogonal(view(full), config_.newton_schulz).mul_(scale));
    }
  }
  return SumOverRanks(result, slice);
}

device::LedgerEntry Muon::BookBuffers(const OptimizerSlice& slice) const {
  const bool gram = config_.newton_schulz == config::NewtonSchulz::kGram;
  config::MuonSlice sizes{.views = slice.parameter.numel(),
                          .shard = slice.full_numel / shards_->size(),
                          .full = slice.full_numel,
                          .sharded = slice.sharded};
  for (const FullParameter& parameter : slice.full_parameters) {
    for (const Matrix& matrix : MatricesOf(parameter)) {
      sizes.iteration = std::max(sizes.iteration,
                                 config::CountIterationElements(matrix.rows, matrix.columns, gram));
    }
  }
  return {ledger_, device::MemoryUse::kOther, device::TierOf(slice.parameter.is_cpu()),
          static_cast<std::int64_t>(sizeof(float)) * config::CountMuonElements(sizes)};
}

void Muon::ApplyToMatrices(const SliceRates& rates, const OptimizerSlice& slice) {
  const device::LedgerEntry buffers = BookBuffers(slice);
  const double decay = 1.0 - rates.lr * rates.weight_decay;
  OptimizerSlice target = slice;
  target.gradient = Orthogonalise(UpdateMomentum(rates, slice), slice);
  UpdateSlice(DecayAndStepOp{static_cast<float>(decay), static_cast<float>(rates.lr)}, target);
}

std::unique_ptr<Optimizer> MakeOptimizer(const config::MuonConfig& config, double weight_decay) {
  return std::make_unique<Muon>(config, weight_decay);
}

}  // namespace ds::optim
