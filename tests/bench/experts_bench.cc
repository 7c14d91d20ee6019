// A layer's experts beside an MLP of as many products a token.
//
//     bench_experts
//
// Prints for each number of experts, of tokens and each dtype the time of the MLP over that of the
// router and its experts, forward and backward (1: a mixture costs nothing; below: it is slower),
// and the time of a loop over experts by LibTorch's operators, as transformers writes it, over
// ours. Contenders alternate; the figures are medians over rounds.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "runtime/base/isa_probe.h"
#include "runtime/device/heap.h"
#include "runtime/models/decoder/decoder_experts.h"
#include "runtime/plan/model/model_ranks.h"
#include "tests/bench/compete.h"

namespace {

using ds::models::Bundle;
using ds::models::DecoderSlice;
using ds::models::DecoderSpec;
using ds::models::TensorPlan;

constexpr std::int64_t kWidth = 512, kExpertWidth = 704;

struct Mixture {
  std::int64_t experts = 8, per_token = 2;
};

// The parts of a layer in which one thing is registered.
class Holder : public ds::models::Block {
 public:
  Holder() : Block("") {}
  Bundle forward(Bundle bundle) override { return bundle; }
};

DecoderSlice MakeSlice(const Mixture& mixture) {
  DecoderSpec spec{
      .vocabulary = 64, .width = kWidth, .layers = 1, .heads = 8, .kv_heads = 8, .head_width = 64};
  spec.experts = mixture.experts;
  spec.experts_per_token = mixture.per_token;
  spec.expert_width = kExpertWidth;
  spec.mlp_width = mixture.per_token * kExpertWidth;
  const TensorPlan plan = TensorPlan::Create(spec, 0, 1).value();
  return {.plan = std::make_shared<TensorPlan>(plan), .heads = ShareHeads(plan, 1).value()};
}

void Fill(Holder& holder) {
  ds::models::AllocateParameters(holder);
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : holder.parameters()) parameter.normal_(0.0, 0.02);
}

// What transformers does with its experts on a CPU: per expert the tokens are looked for, read,
// and added back.
at::Tensor LoopOverExperts(const Holder& holder, const Mixture& mixture, const at::Tensor& x) {
  const auto parameters = holder.named_parameters();
  const auto logits = at::linear(x, parameters["mlp.gate.weight"]);
  auto [weights, chosen] = at::topk(at::softmax(logits.to(at::kFloat), -1), mixture.per_token, -1);
  weights = weights / weights.sum(-1, /*keepdim=*/true);
  at::Tensor y = at::zeros_like(x);
  for (std::int64_t i = 0; i < mixture.experts; ++i) {
    const std::string expert = "mlp.experts." + std::to_string(i) + ".";
    const auto places = at::where(chosen.eq(i));
    const at::Tensor rows = x.index({places[0]});
    const at::Tensor wide = at::silu(at::linear(rows, parameters[expert + "gate_proj.weight"])) *
                            at::linear(rows, parameters[expert + "up_proj.weight"]);
    const at::Tensor out = at::linear(wide, parameters[expert + "down_proj.weight"]) *
                           weights.index({places[0], places[1]}).unsqueeze(1);
    y = y.index_add(0, places[0], out.to(y.scalar_type()));
  }
  return y;
}

ds::bench::Contender MakeContender(const Holder& holder, const at::Tensor& x,
                                   const at::Tensor& upstream,
                                   const std::function<at::Tensor(const at::Tensor&)>& function) {
  const auto call = [&holder, x, upstream, function] {
    function(x).backward(upstream);
    x.mutable_grad() = at::Tensor();
    for (const at::Tensor& each : holder.parameters()) each.mutable_grad() = at::Tensor();
  };
  return {.written = x, .call = call};
}

void Measure(const Mixture& mixture, at::ScalarType dtype, std::int64_t tokens) {
  const DecoderSlice slice = MakeSlice(mixture);
  Holder dense_parts, parts;
  const ds::models::DecoderMlp dense(dense_parts, slice, at::TensorOptions(dtype));
  const ds::models::DecoderExperts experts(parts, slice, at::TensorOptions(dtype));
  Fill(dense_parts);
  Fill(parts);
  const at::Tensor x = at::randn({1, tokens, kWidth}, dtype).requires_grad_();
  const at::Tensor upstream = at::randn({1, tokens, kWidth}, dtype);
  std::vector<ds::bench::Contender> contenders = {
      MakeContender(parts, x, upstream,
                    [&](const at::Tensor& in) {
                      Bundle bundle;
                      return experts.forward(in, &bundle, /*trains=*/true);
                    }),
      MakeContender(dense_parts, x, upstream,
                    [&](const at::Tensor& in) { return dense.forward(in, Bundle(), false); }),
      MakeContender(parts, x, upstream, [&](const at::Tensor& in) {
        return LoopOverExperts(parts, mixture, in[0]).unsqueeze(0);
      })};
  ds::bench::Compete(contenders);
  const double own = ds::bench::Median(contenders[0].seconds);
  fmt::print(
      "{:3} experts, {} a token, {:5} tokens, {}   MLP / experts {:5.2f}   loop / experts "
      "{:5.2f}\n",
      mixture.experts, mixture.per_token, tokens, dtype == at::kFloat ? "fp32" : "bf16",
      ds::bench::Median(contenders[1].seconds) / own,
      ds::bench::Median(contenders[2].seconds) / own);
}

}  // namespace

int main() {
  ds::device::KeepFreedMemory();  // as ranks do
  ds::ProbeAndCapIsa();
  for (const std::int64_t tokens : {2048, 8192}) {  // that a rank has in a micro-batch
    for (const Mixture& mixture : {Mixture{8, 2}, Mixture{64, 4}}) {
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
        Measure(mixture, dtype, tokens);
      }
    }
  }
  return 0;
}
