#include "runtime/models/decoder/decoder_experts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/softmax.h>

#include <string>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/models/decoder/gated_routes.h"
#include "runtime/models/kernels/grouped_product.h"
#include "runtime/models/layers/activations.h"

namespace ds::models {
namespace {

// The bundle's extra with this name holds the sum over layers, because the balance loss covers all.
constexpr const char* kProbabilities = "expert_probabilities";

void AddLoad(const moe::ExpertLoad& load, Bundle* bundle) {
  at::Tensor& routes = bundle->extras[kExpertRoutes];
  at::Tensor& sum = bundle->extras[kProbabilities];
  const at::Tensor row = load.routes.unsqueeze(0);
  routes = routes.defined() ? at::cat({routes, row}) : row;
  sum = sum.defined() ? sum + load.probabilities : load.probabilities;
}

}  // namespace

Router::Router(std::int64_t experts, std::int64_t width, bool wide,
               const at::TensorOptions& options)
    : weight_(register_parameter("weight", UnmaterialisedParameter({experts, width}, options))),
      wide_(wide) {}

at::Tensor Router::forward(const at::Tensor& x) const {
  if (wide_ && weight_.scalar_type() != at::kFloat) {
    return Affine(x.to(at::kFloat), weight_.to(at::kFloat), /*bias=*/{}, WeightLayout::kOutIn);
  }
  return Affine(x, weight_, /*bias=*/{}, WeightLayout::kOutIn);
}

DecoderExperts::DecoderExperts(torch::nn::Module& layer, const DecoderSlice& slice,
                               const at::TensorOptions& options)
    : group_(slice.group),
      ranks_(slice.experts),
      expert_count_(slice.spec().experts),
      rule_{.k = slice.spec().experts_per_token,
            .normalises = slice.spec().normalises_routes,
            .scale = slice.spec().route_scale,
            .groups = slice.spec().route_groups,
            .topk_groups = slice.spec().topk_route_groups},
      gate_(slice.spec().expert_gate),
      activation_(slice.spec().activation),
      shared_mix_(slice.spec().shared_expert_mix) {
  const DecoderSpec& spec = slice.spec();
  const WeightNames& names = spec.names;
  DS_CHECK(spec.gated_mlp && !spec.fused_gate_up);
  const std::int64_t width = spec.width, wide = WidthOfExpert(spec);
  router_ = RegisterAt(layer, {names.mlp, names.router},
                       std::make_shared<Router>(spec.experts, width,
                                                spec.routes_in_fp32 || gate_.has_value(), options));
  const std::int64_t own = spec.experts / ranks_.size(), first = ranks_.rank() * own;
  for (std::int64_t i = first; i < first + own; ++i) {
    const auto add = [&](const char* name, std::int64_t out, std::int64_t in) {
      return RegisterAt(
          layer, {names.mlp, names.experts, std::to_string(i), name},
          std::make_shared<ExpertWeight>(Product::Shape{.in = in, .out = out}, options));
    };
    Expert expert;
    expert.gate = add(names.gate, wide, width);
    expert.up = add(names.up, wide, width);
    expert.down = add(names.down, width, wide);
    experts_.push_back(std::move(expert));
  }
  if (spec.shared_expert_width > 0) AddShared(layer, slice, options);
}

void DecoderExperts::AddShared(torch::nn::Module& layer, const DecoderSlice& slice,
                               const at::TensorOptions& options) {
  const DecoderSpec& spec = slice.spec();
  const WeightNames& names = spec.names;
  const std::string shared = std::string(names.mlp) + "." + names.shared_expert;
  shared_ = std::make_unique<DecoderMlp>(
      layer, slice, options,
      DecoderMlp::MlpVariant{.path = shared, .width = spec.shared_expert_width});
  if (shared_mix_ == SharedExpertMix::kAdded) return;
  const bool weights_both = shared_mix_ == SharedExpertMix::kWeighted;
  const Product::Shape shape{.in = spec.width, .out = weights_both ? 2 : 1, .bias = weights_both};
  shared_gate_ =
      RegisterAt(layer, {names.mlp, names.shared_expert_gate}, MakeProduct(shape, options));
}

moe::Choice DecoderExperts::Choose(const at::Tensor& rows, const at::Tensor& valid) const {
  moe::Choice choice = moe::ChooseExperts(router_->forward(rows), rule_);
  return valid.defined() ? moe::DropRoutes(choice, valid.logical_not()) : choice;
}

at::Tensor DecoderExperts::RunExpert(const Expert& expert, const at::Tensor& rows) const {
  const at::Tensor wide =
      GatedActivation(activation_, expert.gate->forward(rows), expert.up->forward(rows));
  return expert.down->forward(wide);
}

at::Tensor DecoderExperts::RunExperts(const at::Tensor& rows,
                                      const std::vector<std::int64_t>& counts) const {
  std::vector<at::Tensor> gates, ups, downs;
  for (const Expert& expert : experts_) {
    gates.push_back(expert.gate->weight());
    ups.push_back(expert.up->weight());
    downs.push_back(expert.down->weight());
  }
  if (GroupsProducts(rows, gates) && GroupsProducts(rows, ups) && GroupsProducts(rows, downs)) {
    const at::Tensor wide = GatedActivation(activation_, GroupedProduct(rows, gates, counts),
                                            GroupedProduct(rows, ups, counts));
    return GroupedProduct(wide, downs, counts);
  }
  const std::vector<at::Tensor> inputs = rows.split_with_sizes(counts, 0);
  std::vector<at::Tensor> outputs;
  for (std::size_t i = 0; i < experts_.size(); ++i) {
    outputs.push_back(RunExpert(experts_[i], inputs[i]));
  }
  return at::cat(outputs);
}

// An expert without tokens runs, too: its gradients are zeros then, like its peers', and the ranks'
// collective calls do not depend on the routing.
at::Tensor DecoderExperts::Mix(const at::Tensor& rows, const moe::Choice& choice) const {
  const moe::SortedRoutes routes(choice.experts, expert_count_);
  const moe::TokenExchange exchange(ranks_, routes.counts());
  const at::Tensor arrived = exchange.Send(routes.SpreadRows(group_.Share(rows, "experts")));
  // Results are summed before they are weighted, so that every rank has the router's full gradient.
  const at::Tensor results =
      exchange.Return(group_.AddUp(RunExperts(arrived, exchange.own_counts()), "experts"));
  const at::Tensor weights = routes.SortValues(choice.weights).unsqueeze(1);
  return routes.SumRows((results * weights).to(results.scalar_type()));
}

at::Tensor DecoderExperts::MixShared(const at::Tensor& y, const at::Tensor& x,
                                     const Bundle& bundle) const {
  if (!shared_) return y;
  const at::Tensor all = shared_->forward(x, bundle, /*trains=*/false);
  if (shared_mix_ == SharedExpertMix::kAdded) return y + all;
  const at::Tensor gate = shared_gate_->forward(x, &bundle.random);
  if (shared_mix_ == SharedExpertMix::kGated) return y + gate.sigmoid() * all;
  const at::Tensor weights = at::softmax(gate, -1);
  return y * weights.narrow(-1, 0, 1) + all * weights.narrow(-1, 1, 1);
}

at::Tensor DecoderExperts::ForwardGated(const at::Tensor& x, Bundle* bundle, bool trains) const {
  TORCH_CHECK(bundle->mlp_tiles.count == 1,
              "a gate with capacity sees all tokens of a pass at once: leave --tile_mlp out");
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const GateRun run{*gate_, rule_.k, expert_count_, trains, bundle->random};
  const at::Tensor seen = run.Jitter(x).reshape({-1, x.size(-1)});
  const GatedChoice gated = run.Choose(router_->forward(seen), x.sizes());
  AddLoad(gated.load, bundle);
  return MixShared(Mix(rows, gated.choice).view(x.sizes()), x, *bundle);
}

at::Tensor DecoderExperts::forward(const at::Tensor& x, Bundle* bundle, bool trains) const {
  if (gate_) return ForwardGated(x, bundle, trains);
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const at::Tensor& given = bundle->tensor("valid");
  const at::Tensor valid = given.defined() ? given.flatten() : at::Tensor();
  const moe::Choice choice = Choose(rows, valid);
  AddLoad(moe::MeasureLoad(choice, valid), bundle);
  // Each tile routes again, because its result must be a function of its rows, and of their
  // validity, alone.
  const at::Tensor y =
      bundle->mlp_tiles.count == 1
          ? Mix(rows, choice)
          : RunTiled(rows, bundle->mlp_tiles,
                     [this, valid](const at::Tensor& some, std::int64_t first) {
                       const at::Tensor of_some =
                           valid.defined() ? valid.narrow(0, first, some.size(0)) : valid;
                       return Mix(some, Choose(some, of_some));
                     });
  return MixShared(y.view(x.sizes()), x, *bundle);
}

std::optional<moe::ExpertLoad> TakeExpertLoad(Bundle* bundle) {
  const auto routes = bundle->extras.extract(kExpertRoutes);
  const auto probabilities = bundle->extras.extract(kProbabilities);
  if (routes.empty() || probabilities.empty()) return std::nullopt;
  return moe::ExpertLoad{.routes = routes.mapped(), .probabilities = probabilities.mapped()};
}

}  // namespace ds::models
