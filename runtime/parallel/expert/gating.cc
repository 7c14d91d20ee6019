#include "runtime/parallel/expert/gating.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace ds::moe {
namespace {

constexpr float kSmallestStep = std::numeric_limits<float>::epsilon();

// The reference multiplies in fp32: a product above an integer by rounding alone is rounded up.
std::int64_t FindCapacity(const at::Tensor& gates, double factor, std::int64_t least) {
  const double share = static_cast<double>(gates.size(0)) / static_cast<double>(gates.size(1));
  const float tokens = std::ceil(static_cast<float>(share) * static_cast<float>(factor));
  return std::max(static_cast<std::int64_t>(tokens), least);
}

at::Tensor MeanOverTokens(const at::Tensor& values) { return values.to(at::kFloat).mean(0); }

// Returns the index of each token of `mask` [S, E] among its expert's tokens.
at::Tensor AssignSlots(const at::Tensor& mask) { return mask.cumsum(0) - 1; }

at::Tensor MarkDropped(const at::Tensor& kept, const at::Tensor& experts) {
  return at::where(kept, experts, at::full_like(experts, -1));
}

// Marks the `count` largest values of each expert in a mask [S, E].
at::Tensor MarkLargest(const at::Tensor& values, std::int64_t count, bool sorted) {
  const std::int64_t most = std::min(count, values.size(0));
  const at::Tensor largest =
      std::get<1>(at::topk(values, most, /*dim=*/0, /*largest=*/true, sorted));
  return at::zeros_like(values, at::kLong).scatter_(0, largest, 1);
}

}  // namespace

Routes GateTop1(const at::Tensor& logits, const Top1Options& options) {
  const std::int64_t tokens = logits.size(0), experts = logits.size(1);
  TORCH_CHECK(tokens >= options.capacity.least, "a gate got ", tokens,
              " tokens, fewer than the least capacity of an expert, ", options.capacity.least,
              ": lower min_capacity or raise the batch");
  const at::Tensor gates = at::softmax(logits, 1);
  const bool draws = options.choice_noise.defined();
  const at::Tensor chosen = at::argmax(draws ? logits + options.choice_noise : gates, 1);
  at::Tensor mask = at::one_hot(chosen, experts);
  if (options.used.defined()) mask = options.used.to(mask.scalar_type()).unsqueeze(1) * mask;
  Routes routes{.counts = mask.sum(0)};
  routes.capacity = options.capacity.drops
                        ? FindCapacity(gates, options.capacity.factor, options.capacity.least)
                        : std::min(routes.counts.max().item<std::int64_t>(), tokens);
  routes.balance_loss =
      (MeanOverTokens(gates) * MeanOverTokens(mask)).sum() * static_cast<double>(experts);
  const at::Tensor order =
      options.selection_noise.defined() ? mask * options.selection_noise : mask;
  mask = mask * MarkLargest(order, routes.capacity, /*sorted=*/true);
  routes.experts = MarkDropped(mask.sum(1).gt(0), chosen).unsqueeze(0);
  routes.slots = (AssignSlots(mask) * mask).sum(1).unsqueeze(0);
  routes.weights = (gates * mask).sum(1).unsqueeze(0);
  return routes;
}

Routes GateTop2(const at::Tensor& logits, const Top2Options& options) {
  const std::int64_t experts = logits.size(1);
  const at::Tensor gates = at::softmax(logits, 1);
  const at::Tensor first = at::argmax(gates, 1);
  at::Tensor first_mask = at::one_hot(first, experts);
  const at::Tensor noisy = options.second_noise.defined() ? logits + options.second_noise : logits;
  const at::Tensor others =
      noisy.masked_fill(first_mask.to(at::kBool), -std::numeric_limits<double>::infinity());
  const at::Tensor second = at::argmax(others, 1);
  at::Tensor second_mask = at::one_hot(second, experts);
  const at::Tensor first_slots = AssignSlots(first_mask);
  // An expert's second choices come after all of its first choices.
  const at::Tensor second_slots = AssignSlots(second_mask) + first_mask.sum(0, /*keepdim=*/true);
  Routes routes{.counts = (first_mask + second_mask).sum(0)};
  routes.balance_loss = (MeanOverTokens(gates) * MeanOverTokens(first_mask)).mean() *
                        static_cast<double>(experts) * static_cast<double>(experts);
  if (options.capacity.drops) {
    routes.capacity = FindCapacity(gates, options.capacity.factor * 2, options.capacity.least);
    first_mask = first_mask * first_slots.lt(routes.capacity);
    second_mask = second_mask * second_slots.lt(routes.capacity);
  } else {
    routes.capacity = routes.counts.max().item<std::int64_t>();
  }
  const at::Tensor first_gate = (gates * first_mask).sum(1);
  const at::Tensor second_gate = (gates * second_mask).sum(1);
  const at::Tensor sum = (first_gate + second_gate).clamp_min(kSmallestStep);
  routes.experts =
      at::stack({MarkDropped(first_mask.any(1), first), MarkDropped(second_mask.any(1), second)});
  routes.slots =
      at::stack({(first_slots * first_mask).sum(1), (second_slots * second_mask).sum(1)});
  routes.weights = at::stack({first_gate / sum, second_gate / sum});
  return routes;
}

Routes GateTopK(const at::Tensor& logits, const TopKOptions& options) {
  const auto experts = static_cast<double>(logits.size(1));
  const auto k = static_cast<double>(options.k);
  const at::Tensor gates = at::softmax(logits, 1);
  const auto [values, chosen] = at::topk(gates, options.k, 1);
  at::Tensor mask = at::zeros_like(gates, at::kLong).scatter_(1, chosen, 1);
  Routes routes{.counts = mask.sum(0)};
  routes.balance_loss =
      (MeanOverTokens(gates) * MeanOverTokens(mask)).mean() * experts * experts / k;
  if (!options.capacity.drops) {
    routes.capacity = routes.counts.max().item<std::int64_t>();
  } else {
    routes.capacity = FindCapacity(gates, options.capacity.factor * k, options.capacity.least);
    if (options.policy == DropPolicy::kByProbability) {
      const at::Tensor taken = at::zeros_like(gates).scatter(1, chosen, values.detach());
      mask = mask * MarkLargest(taken, routes.capacity, /*sorted=*/false);
    } else {
      mask = mask * AssignSlots(mask).lt(routes.capacity);
    }
  }
  const at::Tensor slots = AssignSlots(mask);
  const at::Tensor masked = gates * mask;
  const at::Tensor weights = masked / masked.sum(-1, /*keepdim=*/true).clamp_min(kSmallestStep);
  const at::Tensor kept = mask.gather(1, chosen);
  routes.experts = MarkDropped(kept.gt(0), chosen).t().contiguous();
  routes.slots = (slots.gather(1, chosen) * kept).t().contiguous();
  routes.weights = weights.gather(1, chosen).t().contiguous();
  return routes;
}

// The reference draws from [tiny, 1 - epsilon), so that no logarithm is infinite.
at::Tensor MakeGumbel(const at::Tensor& uniform) {
  constexpr float kLow = std::numeric_limits<float>::min(), kHigh = 1.0F - kSmallestStep;
  const at::Tensor inner = uniform * (kHigh - kLow) + kLow;
  return -(-inner.log()).log();
}

at::Tensor Jitter(const at::Tensor& x, const at::Tensor& uniform, double epsilon) {
  if (epsilon == 0.0) return x;
  const auto low = static_cast<float>(1.0 - epsilon), high = static_cast<float>(1.0 + epsilon);
  return x * (uniform * (high - low) + low);
}

at::Tensor LogitLoss(const at::Tensor& logits) {
  return at::logsumexp(logits.to(at::kFloat), at::IntArrayRef{-1}).square().mean();
}

}  // namespace ds::moe
