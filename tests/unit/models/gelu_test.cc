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

#include "runtime/models/layers.h"

namespace ds::models {
namespace {

struct GeluResult {
  at::Tensor value, gradient;
};

// Of x in its own dtype, with the upstream gradient.
template <typename Gelu>
GeluResult Run(const Gelu& gelu, const at::Tensor& values, const at::Tensor& upstream) {
  const at::Tensor x = values.clone().set_requires_grad(true);
  const at::Tensor y = gelu(x);
  y.backward(upstream);
  return {y.detach(), x.grad()};
}

GeluResult RunOurs(const at::Tensor& x, const at::Tensor& upstream) {
  return Run([](const at::Tensor& in) { return Activate(Activation::kGeluTanh, in); }, x, upstream);
}
GeluResult RunLibTorchs(const at::Tensor& x, const at::Tensor& upstream) {
  return Run([](const at::Tensor& in) { return at::gelu(in, "tanh"); }, x, upstream);
}

// The error in units in the last place of an fp32 number of the size of `scale`.
double FindUlps(const at::Tensor& ours, const at::Tensor& exact, const at::Tensor& scale) {
  const at::Tensor unit = scale.to(at::kDouble).abs() * std::ldexp(1.0, -23);
  return ((ours.to(at::kDouble) - exact).abs() / unit).max().item<double>();
}

// 100,003 elements: threads' parts and a tail that fills no vector.
TEST(GeluTanh, IsWithinLastPlacesOfTheFormula) {
  const at::Tensor x = at::linspace(-12.0, 12.0, 100003).to(at::kFloat);
  const at::Tensor upstream = at::randn({100003});
  const GeluResult ours = RunOurs(x, upstream), theirs = RunLibTorchs(x, upstream);
  const GeluResult exact = RunLibTorchs(x.to(at::kDouble), upstream.to(at::kDouble));
  const double theirs_off = FindUlps(theirs.value, exact.value, x);
  EXPECT_LE(FindUlps(ours.value, exact.value, x), theirs_off + 1.0);
  EXPECT_LE(FindUlps(ours.gradient, exact.gradient, upstream),
            FindUlps(theirs.gradient, exact.gradient, upstream) + 1.0);
}

TEST(GeluTanh, RoundsToBf16AsTheOperator) {
  const at::Tensor x = at::linspace(-6.0, 6.0, 5003).to(at::kBFloat16);
  const at::Tensor upstream = at::randn({5003}).to(at::kBFloat16);
  const GeluResult ours = RunOurs(x, upstream), theirs = RunLibTorchs(x, upstream);
  EXPECT_TRUE(at::allclose(ours.value, theirs.value, /*rtol=*/1.0 / 128, /*atol=*/1e-6));
  EXPECT_TRUE(at::allclose(ours.gradient, theirs.gradient, /*rtol=*/1.0 / 128, /*atol=*/1e-5));
}

// What recompute and other cuts of a batch rely on.
TEST(GeluTanh, OfAnElementDoesNotDependOnWhereItStands) {
  const at::Tensor x = at::randn({1000}), upstream = at::randn({1000});
  const GeluResult whole = RunOurs(x, upstream);
  for (const std::int64_t first : {1, 7, 500, 993}) {
    const std::int64_t count = std::min<std::int64_t>(33, 1000 - first);
    const GeluResult part =
        RunOurs(x.narrow(0, first, count).clone(), upstream.narrow(0, first, count).clone());
    EXPECT_TRUE(part.value.equal(whole.value.narrow(0, first, count))) << first;
    EXPECT_TRUE(part.gradient.equal(whole.gradient.narrow(0, first, count))) << first;
  }
}

TEST(GeluTanh, LargeValuesAndNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor y = Activate(Activation::kGeluTanh, at::tensor({-1e10F, 0.0F, 1e10F, nan}));
  EXPECT_TRUE(y.narrow(0, 0, 3).equal(at::tensor({0.0F, 0.0F, 1e10F})));
  EXPECT_TRUE(std::isnan(y[3].item<float>()));
  const at::Tensor far = at::tensor({-1e18F, -1e14F, 1e14F, 1e18F});
  EXPECT_TRUE(RunOurs(far, at::ones({4})).gradient.equal(at::tensor({0.0F, 0.0F, 1.0F, 1.0F})));
}

TEST(GeluTanh, TakesWhatIsNotContiguous) {
  const at::Tensor x = at::randn({40, 30}), upstream = at::randn({30, 40});
  const GeluResult strided = RunOurs(x.t(), upstream);
  EXPECT_TRUE(at::allclose(strided.value, RunLibTorchs(x.t(), upstream).value, 1e-5, 1e-6));
  const at::Tensor twice = at::cat({x, x}, 1).set_requires_grad(true);
  Activate(Activation::kGeluTanh, twice).t().sum().backward();
  EXPECT_EQ(twice.grad().sizes(), twice.sizes());
}

}  // namespace
}  // namespace ds::models
