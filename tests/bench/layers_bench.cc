// What stands between a layer's products, beside LibTorch's operators as transformers calls them.
//
//     bench_layers
//
// Prints for each function the nanoseconds of forward and backward pass together per element of its
// result, in fp32 and bf16, and the ratio of the operators' time to ours (above 1: ours is faster).
// Contenders alternate; the figures are medians over rounds.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <vector>

#include "runtime/device/heap.h"
#include "runtime/models/layers/activations.h"
#include "runtime/models/layers/norms.h"
#include "runtime/models/layers/rotary.h"
#include "tests/bench/compete.h"

namespace {

using ds::models::Activation;
using Inputs = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const Inputs&)>;

// A layer of Llama's and GPT-2's 125 million parameters over 2048 tokens.
constexpr std::int64_t kSamples = 4, kTokens = 512, kWidth = 768, kMlp = 2048, kHeads = 12;
constexpr double kEpsilon = 1e-5;

struct Layer {
  const char* name;
  Inputs inputs;  // fp32; those that train have a gradient
  Function ours, operators;
};

at::Tensor NormaliseByOperators(const Inputs& in) {
  const at::Tensor wide = in[0].to(at::kFloat);
  const at::Tensor scale = at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + kEpsilon);
  return in[1] * (wide * scale).to(in[0].scalar_type());
}

at::Tensor RotateByOperators(const Inputs& in) {
  const auto halves = in[0].chunk(2, /*dim=*/-1);
  const at::Tensor turned = at::cat({-halves[1], halves[0]}, /*dim=*/-1);
  const auto twice = [](const at::Tensor& t) { return at::cat({t, t}, /*dim=*/1); };
  return in[0] * twice(in[1]) + turned * twice(in[2]);
}

std::vector<Layer> MakeLayers() {
  const at::Tensor hidden = at::randn({kSamples, kTokens, kWidth});
  const at::Tensor wide = at::randn({kSamples, kTokens, kMlp});
  const at::Tensor heads = at::randn({kSamples, kTokens, kHeads, kWidth / kHeads}).transpose(1, 2);
  const at::Tensor angles = at::randn({kTokens, kWidth / kHeads / 2});
  return {{"RMSNorm",
           {hidden, at::randn({kWidth})},
           [](const Inputs& in) { return ds::models::NormaliseByRms(in[0], in[1], kEpsilon); },
           NormaliseByOperators},
          {"rotary",
           {heads, angles.cos(), angles.sin()},
           [](const Inputs& in) { return ds::models::ApplyRotary(in[0], in[1], in[2]); },
           RotateByOperators},
          {"SwiGLU",
           {wide, at::randn_like(wide)},
           [](const Inputs& in) {
             return ds::models::GatedActivation(Activation::kSilu, in[0], in[1]);
           },
           [](const Inputs& in) { return at::silu(in[0]) * in[1]; }},
          {"GELU",
           {wide},
           [](const Inputs& in) { return ds::models::Activate(Activation::kGeluTanh, in[0]); },
           [](const Inputs& in) { return at::gelu(in[0], "tanh"); }}};
}

ds::bench::Contender MakeContender(const Function& function, const Inputs& inputs,
                                   const at::Tensor& upstream) {
  const auto call = [=] {
    function(inputs).backward(upstream);
    for (const at::Tensor& each : inputs) each.mutable_grad() = at::Tensor();
  };
  return {.written = inputs[0], .call = call};
}

void Measure(const Layer& layer, at::ScalarType dtype) {
  Inputs inputs;
  for (const at::Tensor& each : layer.inputs) {
    const bool is_table = layer.inputs.size() == 3 && !inputs.empty();  // of rotary's angles
    inputs.push_back(each.to(dtype).requires_grad_(!is_table));
  }
  const at::Tensor upstream = at::randn_like(layer.ours(inputs));
  std::vector<ds::bench::Contender> contenders = {MakeContender(layer.ours, inputs, upstream),
                                                  MakeContender(layer.operators, inputs, upstream)};
  ds::bench::Compete(contenders);
  const double own = ds::bench::Median(contenders[0].seconds);
  fmt::print("{:8} {}   {:7.3f} ns/element   operators / ours {:5.2f}\n", layer.name,
             dtype == at::kFloat ? "fp32" : "bf16",
             own / static_cast<double>(upstream.numel()) * 1e9,
             ds::bench::Median(contenders[1].seconds) / own);
}

}  // namespace

int main() {
  ds::device::KeepFreedMemory();  // as ranks do
  for (const Layer& layer : MakeLayers()) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) Measure(layer, dtype);
  }
  return 0;
}
