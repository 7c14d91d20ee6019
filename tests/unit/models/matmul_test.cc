#include "runtime/models/kernels/matmul.h"
#include "runtime/device/autocast_scope.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "runtime/base/isa_probe.h"
#include "runtime/device/autocast_scope.h"

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

// Of every tile size there is more than one, and a rest. In fp32 sums of 16-bit products lose
// nothing that one rounding to 16 bits does not.
TEST(MatMulWidened, RoundsTheProductInFp32Once) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor a = at::randn({2100, 2051}).to(dtype);
    const at::Tensor b = at::randn({2070, 2051}).to(dtype).t();
    const at::Tensor product = a.to(at::kFloat).matmul(b.to(at::kFloat));
    const at::Tensor out = at::full({2100, 2070}, 7.0, dtype);
    MatMulWidened(out, a, b, /*beta=*/0.0F);
    EXPECT_LT(Distance(out.to(at::kFloat), product), 1.0 / 256);
    // Numbers of fp16 lie eight times as close.
    EXPECT_LT((out != product.to(dtype)).to(at::kFloat).mean().item<double>(),
              dtype == at::kHalf ? 8e-3 : 1e-3)
        << "only sums at the middle of two numbers may fall to the other";
    const at::Tensor before = out.to(at::kFloat);
    MatMulWidened(out, a, b, /*beta=*/1.0F);
    EXPECT_LT(Distance(out.to(at::kFloat), before + product), 1.0 / 256);
  }
}

TEST(MatMulWidened, AProductOverNothingIsZero) {
  const at::Tensor a = at::empty({5, 0}, at::kBFloat16), b = at::empty({0, 7}, at::kBFloat16);
  const at::Tensor out = at::full({5, 7}, 7.0, at::kBFloat16);
  MatMulWidened(out, a, b, /*beta=*/1.0F);
  EXPECT_TRUE(out.eq(7.0).all().item<bool>());
  MatMulWidened(out, a, b, /*beta=*/0.0F);
  EXPECT_TRUE(out.eq(0.0).all().item<bool>());
}

TEST(MatMulInto, SixteenBitOperandsAddUpInFp32) {
  [[maybe_unused]] static const IsaReport isa = ProbeAndCapIsa();
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor a = at::randn({40, 33}).to(dtype), b = at::randn({40, 70}).to(dtype);
    const at::Tensor product = a.t().to(at::kFloat).matmul(b.to(at::kFloat));
    at::Tensor out = at::randn({33, 70});
    MatMulInto(out, a.t(), b);
    EXPECT_LT(Distance(out, product), 1e-2);
    MatMulInto(out, a.t(), b, 1.0F);
    EXPECT_LT(Distance(out, 2 * product), 1e-2);
  }
}

TEST(MatMulInto, TakesTransposedOperandsAndRowRanges) {
  const at::Tensor a = at::randn({40, 33}), b = at::randn({70, 40});
  at::Tensor out = at::randn({50, 70});
  at::Tensor rows = out.narrow(0, 10, 33);
  MatMulInto(rows, a.t(), b.t());
  EXPECT_LT(Distance(out.narrow(0, 10, 33), a.t().matmul(b.t())), 1e-6);
}

// LibTorch's autocast for as long as it lives; engines have precision::AutocastScope.
class Autocast {
 public:
  Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }
  ~Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }
};

TEST(Affine, RunsInThePrecisionOfAutocastAsLinearDoes) {
  [[maybe_unused]] static const IsaReport isa = ProbeAndCapIsa();
  const at::Tensor x = Random({3, 5, 24}), weight = Random({40, 24}), bias = Random({40});
  at::Tensor y, expected;
  {
    const Autocast autocast;
    y = Affine(x, weight, bias, WeightLayout::kOutIn);
    expected = at::linear(x, weight, bias);
  }
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_LT(Distance(y.to(at::kFloat), expected.to(at::kFloat)), 1e-2);
  const at::Tensor upstream = at::randn({3, 5, 40}).to(at::kBFloat16);
  expected.backward(upstream);
  const at::Tensor theirs = weight.grad().clone();
  weight.mutable_grad().reset();
  y.backward(upstream);
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
  EXPECT_LT(Distance(weight.grad(), theirs), 1e-2);
  EXPECT_EQ(precision::AutocastOperand(x).scalar_type(), at::kFloat) << "the scope has ended";
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

TEST(Affine, OmitsUnneededGradients) {
  const at::Tensor x = at::randn({3, 8});
  const at::Tensor weight = Random({8, 5});
  Affine(x, weight, {}, WeightLayout::kInOut).sum().backward();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_TRUE(weight.grad().defined());
}

// Adapters beside a frozen model are trained for its memory.
TEST(Affine, KeepsItsInputForTheGradientOfATrainedWeightAlone) {
  for (const WeightLayout layout : {WeightLayout::kInOut, WeightLayout::kOutIn}) {
    for (const bool trains : {false, true}) {
      const bool in_out = layout == WeightLayout::kInOut;
      const at::Tensor leaf = Random({3, 8});
      const at::Tensor weight = in_out ? at::randn({8, 5}) : at::randn({5, 8});
      const at::Tensor bias = Random({5});
      weight.set_requires_grad(trains);
      at::Tensor x = leaf * 2;
      const c10::weak_intrusive_ptr<c10::StorageImpl> kept = x.storage().getWeakStorageImpl();
      const at::Tensor y = Affine(x, weight, bias, layout);
      x.reset();
      EXPECT_EQ(!kept.expired(), trains);
      y.sum().backward();
      const at::Tensor of_input = 2 * weight.detach().sum(in_out ? 1 : 0);
      EXPECT_LT(Distance(leaf.grad(), of_input.expand({3, 8})), 1e-6);
      EXPECT_LT(Distance(bias.grad(), at::full({5}, 3.0)), 1e-6);
    }
  }
}

}  // namespace
}  // namespace ds::models
