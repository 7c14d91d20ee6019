// SwiGLU's own loop is as near to the formula as LibTorch's operators, forward and backward.

#include <ATen/ops/allclose.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>

#include <limits>

#include "runtime/models/layers/activations.h"
#include "tests/unit/models/last_positions.h"

namespace ds::models {
namespace {

using Inputs = std::vector<at::Tensor>;

at::Tensor OwnSwiGlu(const Inputs& in) { return GatedActivation(Activation::kSilu, in[0], in[1]); }
at::Tensor SwiGluByOperators(const Inputs& in) { return at::silu(in[0]) * in[1]; }

// 100,003 elements: threads' parts and a tail that fills no vector. The gradient of the gate is of
// the size of upstream * up, that of up of upstream * gate.
TEST(SwiGlu, IsWithinAPlaceOfTheOperators) {
  const at::Tensor gate = at::linspace(-30.0, 30.0, 100003).to(at::kFloat);
  const at::Tensor up = at::randn({100003}), upstream = at::randn({100003});
  const Results exact =
      RunBothVariants(SwiGluByOperators, Widened({gate, up}), upstream.to(at::kDouble));
  ExpectWithinAPlace(RunBothVariants(OwnSwiGlu, {gate, up}, upstream),
                     RunBothVariants(SwiGluByOperators, {gate, up}, upstream), exact,
                     {gate * up, upstream * up, upstream * gate});
}

TEST(SwiGlu, RoundsToSixteenBitsOnce) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const auto draw = [dtype] { return at::randn({5003}).to(dtype); };
    const Inputs in = {draw() * 4, draw()};
    const at::Tensor upstream = draw();
    const Results ours = RunBothVariants(OwnSwiGlu, in, upstream);
    const Results exact = RunBothVariants(SwiGluByOperators, Widened(in), upstream.to(at::kDouble));
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_TRUE(
          at::allclose(ours[i].to(at::kDouble), exact[i], /*rtol=*/1.0 / 256, /*atol=*/1e-6))
          << i;
    }
  }
}

// What recompute and other cuts of a batch rely on.
TEST(SwiGlu, OfAnElementDoesNotDependOnItsPosition) {
  const Inputs in = {at::randn({1000}), at::randn({1000})};
  const at::Tensor upstream = at::randn({1000});
  const Results full = RunBothVariants(OwnSwiGlu, in, upstream);
  for (const std::int64_t first : {1, 7, 500, 993}) {
    const std::int64_t count = std::min<std::int64_t>(33, 1000 - first);
    const auto slice = [&](const at::Tensor& x) { return x.narrow(0, first, count); };
    const Results part = RunBothVariants(OwnSwiGlu, {slice(in[0]), slice(in[1])}, slice(upstream));
    for (std::size_t i = 0; i < part.size(); ++i) EXPECT_TRUE(part[i].equal(slice(full[i])));
  }
}

TEST(SwiGlu, LargeValuesAndNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor far = at::tensor({-1e30F, 0.0F, 1e30F, nan});
  const Results results = RunBothVariants(OwnSwiGlu, {far, at::ones({4})}, at::ones({4}));
  for (const at::Tensor& each : results) EXPECT_TRUE(std::isnan(each[3].item<float>()));
  EXPECT_TRUE(results[0].narrow(0, 0, 3).equal(at::tensor({0.0F, 0.0F, 1e30F})));
  EXPECT_TRUE(results[1].narrow(0, 0, 3).equal(at::tensor({0.0F, 0.5F, 1.0F})));
}

// Halves of one product, as families with a joint projection have them.
TEST(SwiGlu, AcceptsNonContiguousTensors) {
  const at::Tensor both = at::randn({40, 60}), upstream = at::randn({30, 40}).t();
  const auto halves = [](const auto& gated) {
    return [&gated](const Inputs& in) {
      return gated({in[0].narrow(1, 0, 30), in[0].narrow(1, 30, 30)});
    };
  };
  const Results ours = RunBothVariants(halves(OwnSwiGlu), {both}, upstream);
  const Results theirs = RunBothVariants(halves(SwiGluByOperators), {both}, upstream);
  EXPECT_TRUE(at::allclose(ours[0], theirs[0], 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(ours[1], theirs[1], 1e-5, 1e-6));
}

TEST(GatedActivation, OfOthersIsTheirProduct) {
  const at::Tensor gate = at::randn({20}), up = at::randn({20});
  for (const Activation each : {Activation::kGeluTanh, Activation::kGeluErf, Activation::kRelu}) {
    EXPECT_TRUE(GatedActivation(each, gate, up).equal(Activate(each, gate) * up));
  }
}

}  // namespace
}  // namespace ds::models
