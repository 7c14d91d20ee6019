#include "runtime/models/decoder/gated_routes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>

namespace ds::models {
namespace {

using config::ExpertGateNoise;

constexpr double kJitterEpsilon = 0.01;  // DeepSpeed's value

}  // namespace

at::Tensor GateRun::Draw(at::IntArrayRef shape, DropoutSite site, const at::Tensor& like) const {
  const DropoutDraw draw{.origin = origin_, .site = site};
  return UniformNoise(shape, draw, 0.5, like.options().dtype(at::kFloat)) + 0.5;
}

at::Tensor GateRun::Jitter(const at::Tensor& x) const {
  const at::Tensor wide = x.to(at::kFloat);
  if (gate_.noise != ExpertGateNoise::kJitter || !trains_) return wide;
  return moe::Jitter(wide, Draw(x.sizes(), DropoutSite::kRouterInput, x), kJitterEpsilon);
}

moe::Routes GateRun::Gate(const at::Tensor& logits, const at::Tensor& choice_draw,
                          const at::Tensor& selection_draw) const {
  const moe::Capacity capacity{
      .drops = gate_.drops_tokens,
      .factor = trains_ ? gate_.capacity_factor : gate_.evaluation_capacity_factor,
      .least = gate_.min_capacity};
  const at::Tensor noise = choice_draw.defined() ? moe::MakeGumbel(choice_draw) : choice_draw;
  if (k_ == 1) {
    return moe::GateTop1(
        logits, {.capacity = capacity, .choice_noise = noise, .selection_noise = selection_draw});
  }
  if (k_ == 2) return moe::GateTop2(logits, {.capacity = capacity, .second_noise = noise});
  return moe::GateTopK(logits, {.k = k_, .capacity = capacity});
}

GatedChoice GateRun::Choose(const at::Tensor& logits, at::IntArrayRef sizes) const {
  const bool draws_choice =
      k_ == 1 ? gate_.noise == ExpertGateNoise::kRSample && trains_ : k_ == 2 && gate_.draws_second;
  const auto draw = [&](bool draws, DropoutSite site) {
    if (!draws) return at::Tensor();
    return Draw({sizes[0], sizes[1], experts_}, site, logits).view({-1, experts_});
  };
  const at::Tensor wide = logits.to(at::kFloat);
  const moe::Routes routes =
      Gate(wide, draw(draws_choice, DropoutSite::kExpertChoice),
           draw(k_ == 1 && gate_.selects_at_random, DropoutSite::kExpertSelection));
  GatedChoice gated;
  gated.choice.probabilities = at::softmax(wide, -1);
  gated.choice.experts = at::where(routes.experts.lt(0), experts_, routes.experts).t().contiguous();
  gated.choice.weights = routes.weights.t().contiguous();
  gated.load = {.routes = routes.counts.to(at::kFloat),
                .probabilities = gated.choice.probabilities.sum(0)};
  return gated;
}

}  // namespace ds::models
