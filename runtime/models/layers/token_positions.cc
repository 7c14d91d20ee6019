#include "runtime/models/layers/token_positions.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <bit>
#include <cmath>
#include <limits>

namespace ds::models {
namespace {

// Returns ALiBi's slopes: powers of 2^(-8/n) for n heads, n a power of two. Heads beyond n use
// every other slope of 2n heads.
std::vector<double> AlibiSlopes(std::int64_t heads) {
  const auto power_of_two =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<double> slopes;
  for (std::int64_t i = 0; i < heads; ++i) {
    const bool is_beyond = i >= power_of_two;
    const auto exponent = static_cast<double>(is_beyond ? 2 * (i - power_of_two) + 1 : i + 1);
    const auto of = static_cast<double>(is_beyond ? 2 * power_of_two : power_of_two);
    slopes.push_back(std::exp2(-8.0 * exponent / of));
  }
  return slopes;
}

// Returns the mask [1 or B, 1, S, S]: a token sees itself and earlier tokens, within its window and
// document.
at::Tensor FindSeen(std::int64_t window, const at::Tensor& documents, const at::Tensor& q) {
  const std::int64_t tokens = q.size(2);
  const auto flags = q.options().dtype(at::kBool);
  at::Tensor seen = at::ones({1, 1, tokens, tokens}, flags).tril_();
  if (window > 0) seen = seen.triu_(/*diagonal=*/1 - window);
  if (documents.defined()) {
    seen = seen.logical_and(
        documents.unsqueeze(1).unsqueeze(3).eq(documents.unsqueeze(1).unsqueeze(2)));
  }
  return seen;
}

// Returns the bias in the dtype of the queries `q`, with -infinity at `unseen`.
at::Tensor Finish(const at::Tensor& bias, const at::Tensor& unseen, const at::Tensor& q) {
  return bias.masked_fill(unseen, -std::numeric_limits<double>::infinity())
      .to(q.scalar_type())
      .contiguous();
}

}  // namespace

at::Tensor FindPositions(const Batch& batch) {
  if (const at::Tensor& positions = FindTensor(batch, "positions"); positions.defined()) {
    return positions;
  }
  const at::Tensor& tokens = FindTensor(batch, "tokens");
  const std::int64_t length = tokens.size(-1);
  const at::Tensor indices = at::arange(length, tokens.options());
  const at::Tensor& documents = FindTensor(batch, "documents");
  if (!documents.defined() || length < 2) return indices;
  const at::Tensor begins =
      documents.narrow(1, 1, length - 1).ne(documents.narrow(1, 0, length - 1));
  const at::Tensor first = at::zeros({documents.size(0), 1}, begins.options());
  const at::Tensor starts = at::where(at::cat({first, begins}, /*dim=*/1), indices, 0);
  return indices - std::get<0>(starts.cummax(/*dim=*/1));
}

sequence_parallel::AttendsTo FindSharedDocuments(
    const Batch& batch, const std::vector<sequence_parallel::SequenceChunk>& chunks) {
  const at::Tensor& documents = FindTensor(batch, "documents");
  if (!documents.defined() || !documents.device().is_cpu()) return {};
  std::vector<at::Tensor> least, most;  // by chunk (FPDT), per sample
  for (const auto& [all, own] : chunks) {
    auto [first, last] = documents.narrow(1, all.first, all.count).aminmax(/*dim=*/1);
    least.push_back(first);
    most.push_back(last);
  }
  return [least, most](int queries, int keys) {
    const auto q = static_cast<std::size_t>(queries), k = static_cast<std::size_t>(keys);
    return least[q].le(most[k]).logical_and_(least[k].le(most[q])).any().item<bool>();
  };
}

AttentionBias::AttentionBias(const TensorPlan& plan, const sequence_parallel::HeadRange& heads)
    : positions_(plan.slice().positions),
      window_(plan.slice().window),
      scale_(AttentionScale(plan.slice(), 0)) {
  const bool has_slopes = positions_ == Positions::kAlibi || positions_ == Positions::kAlibiRounded;
  if (!has_slopes) return;
  const std::vector<double> of_all = AlibiSlopes(plan.full_heads());
  const auto first = of_all.begin() + plan.first_head() + heads.first;
  slopes_.assign(first, first + heads.count);
}

at::Tensor AttentionBias::Find(bool windowed, const Batch& batch, const at::Tensor& q) {
  const at::Tensor& documents = FindTensor(batch, "documents");
  const std::int64_t window = windowed && window_ < q.size(2) ? window_ : 0;
  if (!documents.defined() && slopes_.empty() && window == 0) return {};
  CachedBias& made = made_[windowed ? 1 : 0];
  if (!made.Fits(documents, q.size(2), q)) {
    made = {documents, q.size(2), Make(window, documents, q)};
  }
  return made.bias;
}

at::Tensor AttentionBias::FindCached(bool windowed, const KeyValueCache& cache,
                                     const at::Tensor& q) {
  if (cache.begins()) return Find(windowed, {}, q);
  const at::Tensor& positions = cache.positions();
  CachedBias& made = made_[windowed ? 1 : 0];
  if (made.Fits(positions, cache.tokens(), q)) return made.bias;
  const at::Tensor queries = positions.unsqueeze(1).unsqueeze(3);  // [B, 1, S, 1]
  const at::Tensor keys = at::arange(cache.tokens(), positions.options());
  at::Tensor unseen = keys.gt(queries);
  if (windowed && window_ > 0) unseen = unseen.logical_or(keys.le(queries - window_));
  made = {positions, cache.tokens(),
          Finish(MakeSlopes(queries.to(at::kFloat), keys.to(at::kFloat)), unseen, q)};
  return made.bias;
}

bool AttentionBias::HasBetween(const Batch& batch) const {
  return !slopes_.empty() || FindTensor(batch, "documents").defined();
}

at::Tensor AttentionBias::FindBetween(const Batch& batch, sequence_parallel::TokenRange queries,
                                      sequence_parallel::TokenRange keys,
                                      c10::Device device) const {
  const auto along = [&](const sequence_parallel::TokenRange& range) {
    return at::arange(range.first, range.end(), at::TensorOptions(at::kFloat).device(device));
  };
  const at::Tensor bias = MakeSlopes(along(queries).unsqueeze(1), along(keys));
  const at::Tensor& documents = FindTensor(batch, "documents");
  if (!documents.defined()) return bias;
  const auto of = [&](const sequence_parallel::TokenRange& range) {
    return documents.narrow(1, range.first, range.count).unsqueeze(1);
  };
  return bias.masked_fill(of(queries).unsqueeze(3).ne(of(keys).unsqueeze(2)),
                          -std::numeric_limits<double>::infinity());
}

bool AttentionBias::CachedBias::Fits(const at::Tensor& made_of, std::int64_t keys,
                                     const at::Tensor& q) const {
  return bias.defined() && of.is_same(made_of) && tokens == keys && bias.device() == q.device() &&
         bias.scalar_type() == q.scalar_type();
}

at::Tensor AttentionBias::MakeSlopes(const at::Tensor& queries, const at::Tensor& keys) const {
  if (slopes_.empty()) return at::zeros({1, 1, 1, 1}, keys.options());
  const at::Tensor slopes = at::tensor(slopes_, keys.options()).view({1, -1, 1, 1});
  // The softmax ignores terms that are equal for all keys, so absolute positions give the same
  // result as distances. Rounded ones do not.
  if (positions_ == Positions::kAlibi) return slopes * (keys - queries);
  return (slopes.to(at::kBFloat16) * keys.to(at::kBFloat16)).to(at::kFloat) * scale_;
}

at::Tensor AttentionBias::Make(std::int64_t window, const at::Tensor& documents,
                               const at::Tensor& q) const {
  const at::Tensor unseen = FindSeen(window, documents, q).logical_not_();
  const at::Tensor indices = at::arange(q.size(2), q.options().dtype(at::kFloat));
  return Finish(MakeSlopes(indices.unsqueeze(1), indices), unseen, q);
}

}  // namespace ds::models
