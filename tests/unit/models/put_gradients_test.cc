// The gradients of large parameters are written where they are collected, and are the same.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <functional>

#include "runtime/base/isa_probe.h"
#include "runtime/models/kernels/matmul.h"
#include "runtime/models/layers/layers.h"
#include "runtime/models/layers/lm_loss.h"
#include "runtime/models/layers/norms.h"
#include "tests/support/summing_sink.h"

namespace ds::models {
namespace {

using ::ds::testing::SummingSink;

// A loss of a parameter.
using LossOf = std::function<at::Tensor(const at::Tensor& parameter)>;

// What two backward passes through `loss` put for the parameter is what autograd adds up.
void ExpectPutAsAutogradAdds(const at::Tensor& values, const LossOf& loss, double tolerance) {
  [[maybe_unused]] static const IsaReport isa = ProbeAndCapIsa();
  const at::Tensor ordinary = values.clone().set_requires_grad(true);
  const at::Tensor parameter = values.clone().set_requires_grad(true);
  const auto sum = SummingSink::Attach(parameter);
  for (int pass = 1; pass <= 2; ++pass) {
    loss(ordinary).backward();
    loss(parameter).backward();
    EXPECT_EQ(sum->puts, pass);
    if (pass == 1) {
      EXPECT_TRUE(sum->gradient.equal(ordinary.grad()));
    }
  }
  EXPECT_EQ(sum->arrivals, 0);
  const at::Tensor wide = ordinary.grad().to(at::kFloat);
  const double distance = (sum->gradient.to(at::kFloat) - wide).abs().max().item<double>();
  EXPECT_LE(distance, tolerance * wide.abs().max().item<double>());
}

struct PutCase {
  at::ScalarType dtype;
  double tolerance;
};

class PutGradients : public ::testing::TestWithParam<PutCase> {
 protected:
  at::Tensor Values(at::IntArrayRef shape) const { return at::randn(shape).to(GetParam().dtype); }
};

TEST_P(PutGradients, OfWeightsByTheProduct) {
  const at::Tensor x = Values({3, 7, 24});
  for (const WeightLayout layout : {WeightLayout::kInOut, WeightLayout::kOutIn}) {
    const at::Tensor weight = layout == WeightLayout::kInOut ? Values({24, 40}) : Values({40, 24});
    const at::Tensor upstream = Values({3, 7, 40});
    ExpectPutAsAutogradAdds(
        weight, [&](const at::Tensor& w) { return (Affine(x, w, {}, layout) * upstream).sum(); },
        GetParam().tolerance);
  }
}

class KeepingSink : public gradients::GradientSink {
 public:
  KeepingSink(const at::Tensor& parameter, gradients::WriteGradient& kept)
      : GradientSink(parameter), kept_(kept) {}
  void Take(const at::Tensor&) override { ADD_FAILURE() << "not put"; }
  bool Put(const gradients::WriteGradient& write, gradients::DestinationDtype) override {
    kept_ = write;
    return true;
  }

 private:
  gradients::WriteGradient& kept_;
};

// Schedules that bring weights' gradients later hold of a layer what its products read, no more.
TEST_P(PutGradients, OfWeightsLaterHoldNothingThatIsBeforeTheProduct) {
  gradients::WriteGradient later;
  const at::Tensor weight = Values({40, 24}).set_requires_grad(true);
  const gradients::AttachedSink sink(std::make_unique<KeepingSink>(weight, later));
  at::Tensor before = Values({7, 24}).set_requires_grad(true);
  const at::Tensor x = before.detach().tanh();
  const c10::weak_intrusive_ptr<c10::TensorImpl> watched(before.getIntrusivePtr());
  Affine(before.tanh(), weight, {}, WeightLayout::kOutIn).sum().backward();
  before.reset();
  EXPECT_TRUE(watched.expired());
  at::Tensor target = at::zeros_like(weight);
  later(target, /*beta=*/0.0F);
  const at::Tensor expected = x.to(at::kFloat).sum(0).expand({40, 24});
  EXPECT_TRUE(target.to(at::kFloat).allclose(expected, /*rtol=*/1e-2, /*atol=*/1e-2));
}

TEST_P(PutGradients, OfBiasesByTheProduct) {
  const at::Tensor x = Values({3, 7, 24}), weight = Values({24, 40}), upstream = Values({3, 7, 40});
  ExpectPutAsAutogradAdds(
      Values({40}),
      [&](const at::Tensor& bias) {
        return (Affine(x, weight, bias, WeightLayout::kInOut) * upstream).sum();
      },
      GetParam().tolerance);
}

TEST_P(PutGradients, OfNormsByTheirRows) {
  const at::Tensor x = Values({3, 70, 24}), upstream = Values({3, 70, 24});
  ExpectPutAsAutogradAdds(
      Values({24}),
      [&](const at::Tensor& weight) {
        return (NormaliseByRms(x, weight, /*epsilon=*/1e-5) * upstream).sum();
      },
      GetParam().tolerance);
}

TEST(PutGradientsOfTables, RowByRow) {
  const at::Tensor ids = at::tensor({3, 1, 3, 0, 3, 1}, at::kLong).view({2, 3});
  const at::Tensor upstream = at::randn({2, 3, 8});
  ExpectPutAsAutogradAdds(
      at::randn({5, 8}),
      [&](const at::Tensor& table) { return (LookUp(table, ids) * upstream).sum(); },
      /*tolerance=*/1e-6);
}

// Where gradients are added up in fp32, nothing is rounded.
TEST(PutGradientsOfTables, SumsOf16BitsInAWiderPlaceAreNotRounded) {
  const at::Tensor ids = at::tensor({3, 1, 3, 0, 3, 1}, at::kLong).view({2, 3});
  const at::Tensor upstream = at::randn({2, 3, 8}).to(at::kBFloat16);
  const at::Tensor table = at::randn({5, 8}).to(at::kBFloat16).set_requires_grad(true);
  const at::Tensor wide = table.detach().to(at::kFloat).set_requires_grad(true);
  const auto sum = SummingSink::Attach(table, /*is_wide=*/true);
  for (int pass = 1; pass <= 2; ++pass) {
    LookUp(table, ids).backward(upstream);
    (LookUp(wide, ids) * upstream.to(at::kFloat)).sum().backward();
    EXPECT_EQ(sum->puts, pass);
    EXPECT_TRUE(sum->gradient.allclose(wide.grad(), /*rtol=*/1e-6, /*atol=*/1e-6));
  }
  EXPECT_EQ(sum->gradient.scalar_type(), at::kFloat);
}

// A word that comes again and again gets the sum in fp32, rounded once a pass.
TEST(PutGradientsOfTables, SumsIn16BitsAreRoundedOnce) {
  const at::Tensor ids = at::arange(3000, at::kLong).remainder(7).clamp_max(4).view({2, 1500});
  const at::Tensor upstream = at::randn({2, 1500, 8}).to(at::kBFloat16);
  const at::Tensor table = at::randn({6, 8}).to(at::kBFloat16).set_requires_grad(true);
  const at::Tensor wide = table.detach().to(at::kFloat).set_requires_grad(true);
  (LookUp(wide, ids) * upstream.to(at::kFloat)).sum().backward();
  const auto sum = SummingSink::Attach(table);
  at::Tensor expected = at::zeros({6, 8});
  for (int pass = 1; pass <= 2; ++pass) {
    LookUp(table, ids).backward(upstream);
    expected = (expected + wide.grad()).to(at::kBFloat16).to(at::kFloat);
    EXPECT_EQ(sum->puts, pass);
    const at::Tensor error = (sum->gradient.to(at::kFloat) - expected).abs();
    // Another order of the second pass's additions may round to the neighbour.
    EXPECT_TRUE(error.le(pass == 1 ? at::zeros({6, 8}) : expected.abs() / 128).all().item<bool>());
  }
}

TEST_P(PutGradients, OfTheHeadByTheLoss) {
  const at::Tensor hidden = Values({2, 9, 16});
  const at::Tensor labels = at::randint(50, {2, 9}, at::kLong);
  ExpectPutAsAutogradAdds(
      Values({50, 16}),
      [&](const at::Tensor& weight) {
        // Another scale than the loss was told to expect.
        return LmLoss(hidden, weight, labels, {.expected_scale = 4.0}) * 2;
      },
      GetParam().tolerance);
}

// A factor that 16 bits would make 0.3 % smaller: what is put is as long as it says, pass after
// pass.
TEST(PutGradientsOfTheHead, HaveTheFactorUnrounded) {
  constexpr double kFactor = 1.1054;
  const at::Tensor hidden = at::randn({9, 64}).to(at::kBFloat16);
  const at::Tensor labels = at::randint(50, {9}, at::kLong);
  const auto put = [&](double factor) {
    const at::Tensor weight = at::zeros({50, 64}, at::kBFloat16).set_requires_grad(true);
    const auto sum = SummingSink::Attach(weight);
    for (int pass = 0; pass < 2; ++pass) (LmLoss(hidden, weight, labels) * factor).backward();
    EXPECT_EQ(sum->puts, 2);
    return sum->gradient.to(at::kDouble).norm().item<double>();
  };
  EXPECT_NEAR(put(kFactor) / put(1.0), kFactor, 5e-4);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, PutGradients,
                         ::testing::Values(PutCase{at::kFloat, 1e-6},
                                           PutCase{at::kBFloat16, 1.0 / 128}),
                         [](const auto& info) {
                           return info.param.dtype == at::kFloat ? "fp32" : "bf16";
                         });

}  // namespace
}  // namespace ds::models
