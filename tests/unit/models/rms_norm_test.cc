// RMSNorm's own loop is as near to the formula as LibTorch's operators, forward and backward.

#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rsqrt.h>

#include "runtime/models/layers/norms.h"
#include "tests/unit/models/last_positions.h"

namespace ds::models {
namespace {

constexpr double kEpsilon = 1e-5;

using Inputs = std::vector<at::Tensor>;  // x and the weight

at::Tensor OwnRms(const Inputs& in) { return NormaliseByRms(in[0], in[1], kEpsilon); }

at::Tensor FindScale(const at::Tensor& x) {
  return at::rsqrt(x.square().mean(-1, /*keepdim=*/true) + kEpsilon);
}
at::Tensor RmsByOperators(const Inputs& in) { return in[0] * FindScale(in[0]) * in[1]; }

// More rows than one sum of the weight's gradient has, and widths that fill no vector.
class RmsNormWidths : public ::testing::TestWithParam<std::int64_t> {};

// Beside each result stands the size of what is added up to it: of x's gradient the two terms in
// the brackets, of the weight's the rows' parts.
TEST_P(RmsNormWidths, IsWithinAPlaceOfTheOperators) {
  const std::int64_t width = GetParam();
  const at::Tensor x = at::randn({2, 67, width}) * 3, weight = at::randn({width}) + 1;
  const at::Tensor upstream = at::randn({2, 67, width});
  const at::Tensor normal = (x * FindScale(x)).abs(), weighted = (upstream * weight).abs();
  const at::Tensor mean = (normal * weighted).mean(-1, /*keepdim=*/true);
  const Results exact =
      RunBothVariants(RmsByOperators, Widened({x, weight}), upstream.to(at::kDouble));
  ExpectWithinAPlace(RunBothVariants(OwnRms, {x, weight}, upstream),
                     RunBothVariants(RmsByOperators, {x, weight}, upstream), exact,
                     {exact[0], FindScale(x) * (weighted + normal * mean),
                      (upstream.abs() * normal).sum(0).sum(0)});
}

INSTANTIATE_TEST_SUITE_P(Rows, RmsNormWidths, ::testing::Values(1, 5, 64, 103, 1000));

TEST(RmsNorm, RoundsToSixteenBitsBeforeAndAfterTheWeight) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor x = at::randn({70, 100}).to(dtype);
    const at::Tensor weight = at::randn({100}).to(dtype);
    const at::Tensor wide = x.to(at::kFloat);
    const at::Tensor as_transformers = (wide * FindScale(wide)).to(dtype) * weight;
    // Where the fp32 value lies on a boundary, its last place decides.
    const at::Tensor y = OwnRms({x, weight});
    EXPECT_LE(y.ne(as_transformers).sum().item<int>(), y.numel() / 1000);
    EXPECT_TRUE(at::allclose(y, as_transformers, /*rtol=*/1.0 / 64, /*atol=*/0));
  }
}

TEST(RmsNorm, GradientsInSixteenBitsAreThoseOfTheFormulaRounded) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const Inputs in = {at::randn({70, 100}).to(dtype), at::randn({100}).to(dtype)};
    const at::Tensor upstream = at::randn({70, 100}).to(dtype);
    const Results ours = RunBothVariants(OwnRms, in, upstream);
    const Results exact = RunBothVariants(RmsByOperators, Widened(in), upstream.to(at::kDouble));
    EXPECT_TRUE(at::allclose(ours[1].to(at::kDouble), exact[1], 1.0 / 256, 1e-5));
    // Its addends have been rounded, too.
    EXPECT_TRUE(at::allclose(ours[2].to(at::kDouble), exact[2], 1.0 / 64, 0.1));
  }
}

TEST(RmsNorm, OfARowDoesNotDependOnOthers) {
  const at::Tensor x = at::randn({70, 100}), weight = at::randn({100});
  const at::Tensor upstream = at::randn({70, 100});
  const Results full = RunBothVariants(OwnRms, {x, weight}, upstream);
  const auto slice = [&](const at::Tensor& t) { return t.narrow(0, 30, 7); };
  const Results part = RunBothVariants(OwnRms, {slice(x), weight}, slice(upstream));
  EXPECT_TRUE(part[0].equal(slice(full[0])));
  EXPECT_TRUE(part[1].equal(slice(full[1])));
}

TEST(RmsNorm, TheWeightsGradientDoesNotDependOnThreads) {
  const Inputs in = {at::randn({1000, 48}), at::randn({48})};
  const at::Tensor upstream = at::randn({1000, 48});
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Results by_one = RunBothVariants(OwnRms, in, upstream);
  at::set_num_threads(3);
  const Results by_three = RunBothVariants(OwnRms, in, upstream);
  at::set_num_threads(before);
  for (std::size_t i = 0; i < by_one.size(); ++i) EXPECT_TRUE(by_three[i].equal(by_one[i])) << i;
}

TEST(RmsNorm, AcceptsNonContiguousTensorsAndAFrozenWeight) {
  const at::Tensor x = at::randn({100, 70}), weight = at::randn({100});
  const at::Tensor strided = x.t().detach().requires_grad_(true);
  const at::Tensor plain = x.t().contiguous().requires_grad_(true);
  const at::Tensor upstream = at::randn({100, 70}).t();
  OwnRms({strided, weight}).backward(upstream);
  OwnRms({plain, weight}).backward(upstream.contiguous());
  EXPECT_TRUE(strided.grad().equal(plain.grad()));
}

}  // namespace
}  // namespace ds::models
