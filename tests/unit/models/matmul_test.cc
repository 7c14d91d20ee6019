#include "runtime/models/matmul.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

namespace ds::models {
namespace {

at::Tensor Random(at::IntArrayRef shape) { return at::randn(shape).set_requires_grad(true); }

double Distance(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

TEST(MatMulInto, OverwritesOrAdds) {
  const at::Tensor a = at::randn({33, 40}), b = at::randn({40, 70});
  const at::Tensor product = (a.to(at::kDouble).matmul(b.to(at::kDouble))).to(at::kFloat);
  at::Tensor out = at::randn({33, 70});
  MatMulInto(out, a, b);
  EXPECT_LT(Distance(out, product), 1e-6);
  MatMulInto(out, a, b, 1.0F);
  EXPECT_LT(Distance(out, 2 * product), 1e-6);
}

TEST(MatMulInto, TakesTransposedOperandsAndRowRanges) {
  const at::Tensor a = at::randn({40, 33}), b = at::randn({70, 40});
  at::Tensor out = at::randn({50, 70});
  at::Tensor rows = out.narrow(0, 10, 33);
  MatMulInto(rows, a.t(), b.t());
  EXPECT_LT(Distance(out.narrow(0, 10, 33), a.t().matmul(b.t())), 1e-6);
}

struct AffineCase {
  WeightLayout layout;
  bool bias;
};

class AffineTest : public ::testing::TestWithParam<AffineCase> {};

TEST_P(AffineTest, ValueAndGradientsAreThoseOfLinear) {
  const auto [layout, with_bias] = GetParam();
  const at::Tensor x = Random({4, 9, 24});
  const at::Tensor weight = layout == WeightLayout::kInOut ? Random({24, 40}) : Random({40, 24});
  const at::Tensor bias = with_bias ? Random({40}) : at::Tensor();
  const at::Tensor upstream = at::randn({4, 9, 40});

  const at::Tensor out_in = layout == WeightLayout::kInOut ? weight.t() : weight;
  const at::Tensor expected = with_bias ? at::linear(x, out_in, bias) : at::linear(x, out_in);
  expected.backward(upstream);
  std::vector<at::Tensor> expected_gradients;
  for (const at::Tensor& input : {x, weight, bias}) {
    if (!input.defined()) continue;
    expected_gradients.push_back(input.grad().clone());
    input.mutable_grad().reset();
  }

  const at::Tensor y = Affine(x, weight, bias, layout);
  EXPECT_LT(Distance(y, expected), 1e-6);
  y.backward(upstream);
  EXPECT_LT(Distance(x.grad(), expected_gradients[0]), 1e-6);
  EXPECT_LT(Distance(weight.grad(), expected_gradients[1]), 1e-6);
  EXPECT_TRUE(weight.grad().is_contiguous());
  if (with_bias) {
    EXPECT_LT(Distance(bias.grad(), expected_gradients[2]), 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, AffineTest,
                         ::testing::Values(AffineCase{WeightLayout::kInOut, true},
                                           AffineCase{WeightLayout::kInOut, false},
                                           AffineCase{WeightLayout::kOutIn, true},
                                           AffineCase{WeightLayout::kOutIn, false}));

TEST(Affine, LeavesOutGradientsThatNobodyWants) {
  const at::Tensor x = at::randn({3, 8});
  const at::Tensor weight = Random({8, 5});
  Affine(x, weight, {}, WeightLayout::kInOut).sum().backward();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_TRUE(weight.grad().defined());
}

}  // namespace
}  // namespace ds::models
