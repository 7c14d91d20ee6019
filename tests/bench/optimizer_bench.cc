// An optimizer's update beside LibTorch's fused one, and beside the memory it cannot do without.
//
//     bench_optimizer cpu|cuda [ELEMENTS]
//
// For Adam and SGD with momentum, each in fp32, with bf16 gradients, clipping and published bf16
// weights (which LibTorch needs passes of its own for), and in bf16 throughout. Prints nanoseconds
// per element, the ratio of LibTorch's time to ours (above 1: ours is faster), and the share of the
// bandwidth of one plain copy that the bytes an update must move come to. Contenders alternate;
// the figures are medians over rounds.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <variant>
#include <vector>

#include "runtime/device/rank_device.h"
#include "runtime/optim/kernels/flat_update.h"
#include "runtime/optim/optimizer.h"
#include "tests/bench/compete.h"

namespace {

using ds::bench::Compete;
using ds::bench::Contender;
using ds::bench::Median;
using ds::config::AdamConfig;
using ds::config::OptimizerConfig;
using ds::config::SgdConfig;
using ds::optim::OptimizerSlice;

enum class Layout { kFp32, kPublished, kBf16 };

OptimizerSlice MakeSlice(const ds::optim::Optimizer& optimizer, const at::Device& device,
                         std::int64_t count, Layout layout) {
  const auto options = at::TensorOptions(at::kFloat).device(device);
  OptimizerSlice part{.parameter = at::randn({count}, options),
                      .gradient = at::randn({count}, options),
                      .launch = ds::optim::FindFlatUpdate(device)};
  for (std::size_t i = 0; i < optimizer.state_names({}).size(); ++i) {
    part.state.push_back(at::zeros({count}, options));
  }
  if (layout != Layout::kFp32) part.gradient = part.gradient.to(at::kBFloat16);
  if (layout == Layout::kPublished) part.published = part.parameter.to(at::kBFloat16);
  if (layout == Layout::kBf16) {
    part.parameter = part.parameter.to(at::kBFloat16);
    for (at::Tensor& state : part.state) state = state.to(at::kBFloat16);
  }
  return part;
}

// What PyTorch does for the same: fused update, with clipping and copies around it.
void TorchStep(const OptimizerConfig& config, const ds::optim::Update& update,
               const OptimizerSlice& part) {
  at::Tensor gradient = part.gradient.to(part.parameter.scalar_type());
  if (update.gradient_scale != 1.0) gradient = gradient.mul(update.gradient_scale);
  const std::vector<at::Tensor> p{part.parameter}, g{gradient};
  if (const auto* sgd = std::get_if<SgdConfig>(&config.algorithm)) {
    at::_fused_sgd_(p, g, {part.state[0]}, config.weight_decay, sgd->momentum, update.lr, 0.0,
                    false, false, false);
  } else {
    const auto& adam = std::get<AdamConfig>(config.algorithm);
    const at::Tensor steps =
        at::full({}, static_cast<double>(update.step), part.parameter.options().dtype(at::kFloat));
    at::_fused_adamw_(p, g, {part.state[0]}, {part.state[1]}, {}, {steps}, update.lr, adam.beta1,
                      adam.beta2, config.weight_decay, adam.eps, false, false);
  }
  if (part.published.defined()) part.published.copy_(part.parameter);
}

// Bytes an update cannot but read or write, per element.
std::size_t BytesPerElement(const OptimizerSlice& part) {
  std::size_t bytes = 2 * part.parameter.element_size() + part.gradient.element_size();
  for (const at::Tensor& state : part.state) bytes += 2 * state.element_size();
  return part.published.defined() ? bytes + part.published.element_size() : bytes;
}

void Measure(const ds::config::OptimizerAlgorithm& algorithm, const at::Device& device,
             std::int64_t count, Layout layout) {
  const OptimizerConfig config{.lr = 1e-4, .weight_decay = 0.01, .algorithm = algorithm};
  const auto optimizer = ds::optim::MakeOptimizer(config);
  const ds::optim::Update update{
      .lr = config.lr, .gradient_scale = layout == Layout::kPublished ? 0.5 : 1.0, .step = 10};
  const OptimizerSlice ours = MakeSlice(*optimizer, device, count, layout);
  const OptimizerSlice theirs = MakeSlice(*optimizer, device, count, layout);
  const at::Tensor from = at::zeros({count}, ours.parameter.options().dtype(at::kFloat));
  const at::Tensor to = at::zeros_like(from);
  std::vector<Contender> contenders = {
      {.written = ours.parameter, .call = [&] { optimizer->Apply(update, ours); }},
      {.written = theirs.parameter, .call = [&] { TorchStep(config, update, theirs); }},
      {.written = to, .call = [&] { to.copy_(from); }}};
  Compete(contenders);
  const double own = Median(contenders[0].seconds);
  const double limit = Median(contenders[2].seconds) / (2 * sizeof(float)) *
                       static_cast<double>(BytesPerElement(ours));
  fmt::print(
      "{:5} {:38} {:8.4f} ns/element   torch / ours {:5.2f}   of a copy's bandwidth {:3.0f} %\n",
      std::holds_alternative<SgdConfig>(algorithm) ? "SGD" : "AdamW",
      layout == Layout::kFp32        ? "fp32 gradients"
      : layout == Layout::kPublished ? "bf16 gradients, clipped, published"
                                     : "bf16 throughout",
      own / static_cast<double>(count) * 1e9, Median(contenders[1].seconds) / own,
      100.0 * limit / own);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  const auto choice = ds::device::DeviceChoiceFromName(name);
  if (!choice.ok() || argc > 3) {
    fmt::print(stderr, "usage: bench_optimizer cpu|cuda [ELEMENTS]\n");
    return 2;
  }
  const auto opened = ds::device::OpenRankDevice(*choice, 0);
  if (!opened.ok()) {
    fmt::print("nothing measured: {}\n", opened.status().message());
    return 3;
  }
  const std::int64_t fallback = opened->device.is_cpu() ? 50'000'000 : 500'000'000;
  const std::int64_t count = argc > 2 ? std::atoll(argv[2]) : fallback;
  for (const Layout layout : {Layout::kFp32, Layout::kPublished, Layout::kBf16}) {
    Measure(AdamConfig{}, opened->device, count, layout);
    Measure(SgdConfig{.momentum = 0.9}, opened->device, count, layout);
  }
  return 0;
}
