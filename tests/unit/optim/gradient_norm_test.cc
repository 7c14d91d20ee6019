#include "runtime/optim/kernels/gradient_norm.h"

#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ds::optim {
namespace {

TEST(SumOfSquares, EqualsTheSumInDouble) {
  for (const std::int64_t count : {0, 1, 31, 32, 33, 100'000, 600'001}) {
    const at::Tensor values = at::randn({count});
    const double expected = values.to(at::kDouble).square().sum().item<double>();
    EXPECT_NEAR(SumOfSquares(values), expected, 1e-9 * expected) << count;
  }
}

TEST(SumOfSquares, Reads16BitTypes) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor values = at::randn({5000}).to(type);
    const double expected = values.to(at::kDouble).square().sum().item<double>();
    EXPECT_NEAR(SumOfSquares(values), expected, 1e-9 * expected);
  }
}

// On the CPU, too, though ranks there take the loop.
TEST(SquareSum, AreAddedUpByTheirWeights) {
  SquareSum squares;
  EXPECT_FALSE(squares.Sum().defined());
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor first = at::randn({5000}).to(type), second = at::randn({7}).to(type);
    squares.Add(first, 1.0);
    squares.Add(second, 0.25);
    squares.Add(first.narrow(0, 0, 0), 1.0);
    const double expected = SumOfSquares(first) + 0.25 * SumOfSquares(second);
    squares.Measure();
    first.zero_();  // it has been looked at
    squares.Add(second, 2.0);
    const double more = 2.0 * SumOfSquares(second);
    EXPECT_NEAR(squares.Sum().item<double>(), expected + more, 1e-9 * (expected + more));
    EXPECT_FALSE(squares.Sum().defined()) << "it is forgotten";
  }
  squares.Add(at::full({4}, 1e30F), 1.0);
  EXPECT_NEAR(std::sqrt(squares.Sum().item<double>()), 2e30, 1e24);
  squares.Add(at::full({4}, std::numeric_limits<float>::infinity()), 1.0);
  EXPECT_FALSE(std::isfinite(squares.Sum().item<double>()));
}

TEST(SumOfSquares, LargeFiniteValuesDoNotOverflow) {
  EXPECT_NEAR(std::sqrt(SumOfSquares(at::full({4}, 1e30F))), 2e30, 1e24);
}

TEST(SumOfSquares, IsNotFiniteWhenAValueIsNot) {
  at::Tensor values = at::randn({1000});
  values[777] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(SumOfSquares(values)));
  values[777] = -std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(SumOfSquares(values)));
}

TEST(ClipFactor, FollowsPyTorch) {
  EXPECT_EQ(ClipFactor(0.5, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(ClipFactor(4.0, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_EQ(ClipFactor(4.0, 0.0), 1.0) << "0 switches clipping off";
}

TEST(DecideUpdate, MatchesTheHost) {
  for (const double squares : {0.0, 0.3, 16.0, 1e12, 1e300}) {
    for (const double unit : {1.0, 3.0, 65536.0}) {
      for (const double max_norm : {0.0, 1.0, 0.37}) {
        const at::Tensor decision =
            DecideUpdate(at::full({}, squares, at::kDouble), unit, max_norm);
        const double factor = ClipFactor(std::sqrt(squares) / unit, max_norm) / unit;
        EXPECT_EQ(decision[0].item<float>(), static_cast<float>(factor)) << squares << " " << unit;
        EXPECT_EQ(decision[1].item<float>(), 1.0F);
      }
    }
  }
}

TEST(DecideUpdate, DoesNotApplyUpdatesThatAreNotFinite) {
  for (const double squares :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(DecideUpdate(at::full({}, squares, at::kDouble), 2.0, 1.0)[1].item<float>(), 0.0F);
  }
}

}  // namespace
}  // namespace ds::optim
