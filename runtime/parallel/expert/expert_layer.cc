#include "runtime/parallel/expert/expert_layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <string>

#include "runtime/base/divisors.h"

namespace ds::moe {
namespace {

constexpr double kJitterEpsilon = 0.01;  // as in the reference

// The rows of all experts, expert after expert, in the order of their slots.
struct ExpertRows {
  std::vector<std::int64_t> counts;  // by expert, without dropped tokens
  at::Tensor of_route;               // [k, S]: the row of each route; dropped: one past the last
  at::Tensor tokens;                 // the token of each row
};

ExpertRows ListRows(const Routes& routes) {
  const at::Tensor kept = routes.experts.ge(0);
  const at::Tensor counts = routes.counts.clamp_max(routes.capacity);
  const at::Tensor starts = counts.cumsum(0) - counts;
  const auto all = counts.sum().item<std::int64_t>();
  const at::Tensor rows =
      starts.index_select(0, routes.experts.clamp_min(0).flatten()).view_as(routes.experts) +
      routes.slots;
  ExpertRows listed;
  listed.of_route = at::where(kept, rows, at::full_like(rows, all));
  // A dropped route writes to the row after the last, which is not read.
  listed.tokens = at::zeros({all + 1}, rows.options());
  const at::Tensor tokens = at::arange(rows.size(1), rows.options()).expand_as(rows);
  listed.tokens.scatter_(0, listed.of_route.flatten(), tokens.reshape({-1}));
  listed.tokens = listed.tokens.narrow(0, 0, all);
  const at::Tensor on_host = counts.to(at::kCPU);
  const auto* first = on_host.const_data_ptr<std::int64_t>();
  listed.counts.assign(first, first + on_host.numel());
  return listed;
}

}  // namespace

ExpertLayer::ExpertLayer(const ExpertLayerOptions& options,
                         const std::function<std::shared_ptr<Expert>()>& make)
    : options_(options) {
  const auto without_bias = torch::nn::LinearOptions(options.width, options.experts).bias(false);
  gate_ = register_module("gate", torch::nn::Linear(without_bias));
  TORCH_CHECK(options.experts % options.ranks.size() == 0, options.ranks.size(),
              " ranks cannot share ", options.experts, " experts: take ",
              NameNearestDivisors(options.experts, options.ranks.size()));
  const std::int64_t own = options.experts / options.ranks.size();
  const std::int64_t first = options.ranks.rank() * own;
  for (std::int64_t i = first; i < first + own; ++i) {
    experts_.push_back(register_module("expert_" + std::to_string(i), make()));
  }
  if (!options.residual) return;
  mlp_ = register_module("mlp", make());
  coefficient_ = register_module("coefficient", torch::nn::Linear(options.width, 2));
}

Routes ExpertLayer::Gate(const at::Tensor& rows, const Draw& draw, const at::Tensor& used) {
  at::Tensor seen = rows.to(at::kFloat);
  if (options_.noise == GateNoise::kJitter && is_training()) {
    seen = Jitter(seen, draw(seen.sizes()), kJitterEpsilon);
  }
  const at::Tensor logits = at::linear(seen, gate_->weight.to(at::kFloat));
  Capacity capacity = options_.capacity;
  if (!is_training()) capacity.factor = options_.evaluation_factor;
  const auto draw_if = [&](bool draws) { return draws ? draw(logits.sizes()) : at::Tensor(); };
  if (options_.k == 1) {
    Top1Options top1{.capacity = capacity, .used = used};
    const bool samples = options_.noise == GateNoise::kRSample && is_training();
    if (samples) top1.choice_noise = MakeGumbel(draw(logits.sizes()));
    top1.selection_noise = draw_if(options_.selects_at_random);
    return GateTop1(logits, top1);
  }
  if (options_.k == 2) {
    const at::Tensor uniform = draw_if(options_.draws_second);
    return GateTop2(logits, {.capacity = capacity,
                             .second_noise = uniform.defined() ? MakeGumbel(uniform) : uniform});
  }
  return GateTopK(logits, {.k = options_.k, .capacity = capacity});
}

at::Tensor ExpertLayer::RunExperts(const at::Tensor& rows, const Routes& routes) {
  const ExpertRows listed = ListRows(routes);
  const TokenExchange exchange(options_.ranks, listed.counts);
  const auto inputs =
      exchange.Send(rows.index_select(0, listed.tokens)).split_with_sizes(exchange.own_counts(), 0);
  std::vector<at::Tensor> outputs;
  for (std::size_t i = 0; i < experts_.size(); ++i) {
    outputs.push_back(experts_[i]->forward(inputs[i]));
  }
  const at::Tensor back = exchange.Return(at::cat(outputs));
  const at::Tensor dropped = at::zeros({1, rows.size(1)}, back.options());
  const at::Tensor results = at::cat({back, dropped}).index_select(0, listed.of_route.flatten());
  const at::Tensor by_route =
      results.view({routes.experts.size(0), routes.experts.size(1), rows.size(1)});
  return (by_route * routes.weights.unsqueeze(-1)).sum(0).to(results.scalar_type());
}

bool ExpertLayer::HasApart(const at::Tensor& parameter) const {
  if (options_.ranks.size() == 1) return false;
  for (const auto& expert : experts_) {
    for (const at::Tensor& own : expert->parameters()) {
      if (own.is_same(parameter)) return true;
    }
  }
  return false;
}

ExpertLayer::Result ExpertLayer::forward(const at::Tensor& x, const Draw& draw,
                                         const at::Tensor& used) {
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const Routes routes = Gate(rows, draw, used);
  at::Tensor y = RunExperts(rows, routes);
  if (mlp_) {
    const at::Tensor shares = at::softmax(coefficient_->forward(rows), -1);
    y = y * shares.narrow(1, 0, 1) + mlp_->forward(rows) * shares.narrow(1, 1, 1);
  }
  return {
      .output = y.view(x.sizes()), .balance_loss = routes.balance_loss, .counts = routes.counts};
}

}  // namespace ds::moe
