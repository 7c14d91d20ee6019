// GELU's own loop is as near to the formula as LibTorch's operator, forward and backward.

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/models/layers/activations.h"
#include "tests/unit/models/last_positions.h"

namespace ds::models {
namespace {

at::Tensor OwnGelu(const std::vector<at::Tensor>& in) {
  return Activate(Activation::kGeluTanh, in[0]);
}
at::Tensor LibTorchsGelu(const std::vector<at::Tensor>& in) { return at::gelu(in[0], "tanh"); }

// 100,003 elements: threads' parts and a tail that fills no vector.
TEST(GeluTanh, IsWithinLastPlacesOfTheFormula) {
  const at::Tensor x = at::linspace(-12.0, 12.0, 100003).to(at::kFloat);
  const at::Tensor upstream = at::randn({100003});
  const Results exact = RunBothVariants(LibTorchsGelu, Widened({x}), upstream.to(at::kDouble));
  ExpectWithinAPlace(RunBothVariants(OwnGelu, {x}, upstream),
                     RunBothVariants(LibTorchsGelu, {x}, upstream), exact, {x, upstream});
}

TEST(GeluTanh, RoundsToSixteenBitsAsTheOperator) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor x = at::linspace(-6.0, 6.0, 5003).to(dtype);
    const at::Tensor upstream = at::randn({5003}).to(dtype);
    const Results ours = RunBothVariants(OwnGelu, {x}, upstream);
    const Results theirs = RunBothVariants(LibTorchsGelu, {x}, upstream);
    EXPECT_TRUE(at::allclose(ours[0], theirs[0], /*rtol=*/1.0 / 128, /*atol=*/1e-6));
    EXPECT_TRUE(at::allclose(ours[1], theirs[1], /*rtol=*/1.0 / 128, /*atol=*/1e-5));
  }
}

// What recompute and other cuts of a batch rely on.
TEST(GeluTanh, OfAnElementDoesNotDependOnItsPosition) {
  const at::Tensor x = at::randn({1000}), upstream = at::randn({1000});
  const Results full = RunBothVariants(OwnGelu, {x}, upstream);
  for (const std::int64_t first : {1, 7, 500, 993}) {
    const std::int64_t count = std::min<std::int64_t>(33, 1000 - first);
    const auto slice = [&](const at::Tensor& all) { return all.narrow(0, first, count); };
    const Results part = RunBothVariants(OwnGelu, {slice(x)}, slice(upstream));
    EXPECT_TRUE(part[0].equal(slice(full[0]))) << first;
    EXPECT_TRUE(part[1].equal(slice(full[1]))) << first;
  }
}

TEST(GeluTanh, LargeValuesAndNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor y = Activate(Activation::kGeluTanh, at::tensor({-1e10F, 0.0F, 1e10F, nan}));
  EXPECT_TRUE(y.narrow(0, 0, 3).equal(at::tensor({0.0F, 0.0F, 1e10F})));
  EXPECT_TRUE(std::isnan(y[3].item<float>()));
  const at::Tensor far = at::tensor({-1e18F, -1e14F, 1e14F, 1e18F});
  const Results results = RunBothVariants(OwnGelu, {far}, at::ones({4}));
  EXPECT_TRUE(results[1].equal(at::tensor({0.0F, 0.0F, 1.0F, 1.0F})));
}

TEST(GeluTanh, AcceptsNonContiguousTensors) {
  const at::Tensor x = at::randn({40, 30}), upstream = at::randn({30, 40});
  const Results strided = RunBothVariants(OwnGelu, {x.t()}, upstream);
  EXPECT_TRUE(
      at::allclose(strided[0], RunBothVariants(LibTorchsGelu, {x.t()}, upstream)[0], 1e-5, 1e-6));
  const at::Tensor twice = at::cat({x, x}, 1).set_requires_grad(true);
  Activate(Activation::kGeluTanh, twice).t().sum().backward();
  EXPECT_EQ(twice.grad().sizes(), twice.sizes());
}

}  // namespace
}  // namespace ds::models
