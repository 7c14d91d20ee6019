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

AttentionTerms::AttentionTerms(const TensorPlan& plan, const sequence_parallel::HeadRange& heads)
    : positions_(plan.slice().positions),
      window_(plan.slice().window),
      scale_(AttentionScale(plan.slice(), 0)) {
  const bool has_slopes = positions_ == Positions::kAlibi || positions_ == Positions::kAlibiRounded;
  if (!has_slopes) return;
  const std::vector<double> of_all = AlibiSlopes(plan.full_heads());
  const auto first = of_all.begin() + plan.first_head() + heads.first;
  slopes_.assign(first, first + heads.count);
}

std::shared_ptr<const kernels::SampleDocuments> AttentionTerms::FindDocuments(
    const Bundle& bundle) {
  const at::Tensor& numbers = bundle.tensor("documents");
  if (!numbers.defined()) return nullptr;
  const auto are_of_batch = [&](const auto& documents) {
    return documents && documents->numbers().is_same(numbers);
  };
  if (are_of_batch(bundle.documents)) return bundle.documents;
  if (!are_of_batch(documents_)) {
    documents_ = nullptr;
    documents_ = std::make_shared<const kernels::SampleDocuments>(numbers);
  }
  return documents_;
}

at::Tensor AttentionTerms::FindKeyTerms(std::int64_t tokens, c10::Device device) {
  if (slopes_.empty()) return {};
  if (!key_terms_.defined() || key_terms_.size(1) != tokens || key_terms_.device() != device) {
    key_terms_ = MakeKeyTerms(at::arange(tokens, at::TensorOptions(at::kDouble).device(device)));
  }
  return key_terms_;
}

at::Tensor AttentionTerms::FindCached(bool windowed, const KeyValueCache& cache,
                                      const at::Tensor& q) {
  const at::Tensor& positions = cache.positions();
  CachedBias& made = made_[windowed ? 1 : 0];
  if (made.Fits(positions, cache.tokens(), q)) return made.bias;
  const at::Tensor queries = positions.unsqueeze(1).unsqueeze(3);  // [B, 1, S, 1]
  const at::Tensor keys = at::arange(cache.tokens(), positions.options());
  at::Tensor unseen = keys.gt(queries);
  if (windowed && window_ > 0) unseen = unseen.logical_or(keys.le(queries - window_));
  at::Tensor bias = at::zeros({1, 1, 1, 1}, keys.options().dtype(at::kFloat));
  if (!slopes_.empty()) {
    const at::Tensor terms = MakeKeyTerms(keys.to(at::kDouble)).unsqueeze(1).unsqueeze(0);
    const at::Tensor own = MakeKeyTerms(positions.to(at::kDouble).flatten());
    // Relative to each query, because terms of near tokens are then small and exact in 16 bits.
    bias = terms - own.unflatten(1, positions.sizes()).transpose(0, 1).unsqueeze(3);
  }
  made = {positions, cache.tokens(),
          bias.masked_fill(unseen, -std::numeric_limits<double>::infinity())
              .to(q.scalar_type())
              .contiguous()};
  return made.bias;
}

bool AttentionTerms::CachedBias::Fits(const at::Tensor& made_of, std::int64_t keys,
                                      const at::Tensor& q) const {
  return bias.defined() && of.is_same(made_of) && tokens == keys && bias.device() == q.device() &&
         bias.scalar_type() == q.scalar_type();
}

at::Tensor AttentionTerms::MakeKeyTerms(const at::Tensor& positions) const {
  const at::Tensor slopes = at::tensor(slopes_, positions.options()).unsqueeze(1);
  if (positions_ == Positions::kAlibi) return slopes * positions;
  const at::Tensor rounded =
      slopes.to(at::kFloat).to(at::kBFloat16) * positions.to(at::kFloat).to(at::kBFloat16);
  return rounded.to(at::kDouble) * scale_;
}

}  // namespace ds::models
