// A part that is recomputed gives the bits of one that is not, and keeps its inputs only.

#include "runtime/autograd/recompute.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/real.h>
#include <ATen/ops/tanh.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/variable.h>

#include "runtime/device/autocast_scope.h"
#include "runtime/device/counting_allocator.h"

namespace ds::activation {
namespace {

using ::testing::HasSubstr;

at::Tensor Leaf(const at::Tensor& values) { return values.clone().set_requires_grad(true); }
at::Tensor Line(std::int64_t rows, std::int64_t columns) {
  return at::linspace(-1.0, 1.0, rows * columns).view({rows, columns});
}

// y = tanh(x · w), from a weight that the part reads of itself.
RecomputedForward Layer(const at::Tensor& weight) {
  return [weight](Tensors inputs) { return Tensors{at::tanh(inputs[0].matmul(weight))}; };
}

TEST(RecomputeTest, GradientsAreThoseOfKeepingEverything) {
  const at::Tensor x = Line(4, 3);
  std::vector<at::Tensor> gradients[2];
  for (const bool recomputed : {false, true}) {
    const at::Tensor input = Leaf(x), first = Leaf(Line(3, 5)), second = Leaf(Line(5, 2));
    Tensors flow{input};
    for (const at::Tensor& weight : {first, second}) {
      flow = recomputed ? Recompute(Layer(weight), flow, {.trains = true}) : Layer(weight)(flow);
    }
    flow[0].sum().backward();
    gradients[recomputed ? 1 : 0] = {input.grad(), first.grad(), second.grad()};
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(gradients[0][i].equal(gradients[1][i])) << i;
}

TEST(RecomputeTest, TheGeneratorDrawsTheSameAndResumes) {
  at::manual_seed(7);
  const at::Tensor x = Leaf(at::ones({64, 64}));
  const Tensors dropped = Recompute(
      [](Tensors inputs) { return Tensors{at::dropout(inputs[0], 0.5, /*train=*/true)}; }, {x});
  const at::Tensor next = at::randn({4});
  dropped[0].sum().backward();
  EXPECT_TRUE(x.grad().equal(dropped[0].detach()));  // the factors
  const at::Tensor after = at::randn({4});
  at::manual_seed(7);
  at::dropout(at::ones({64, 64}), 0.5, /*train=*/true);
  EXPECT_TRUE(at::randn({4}).equal(next));
  EXPECT_TRUE(at::randn({4}).equal(after)) << "the backward pass must not draw for others";
}

TEST(RecomputeTest, AutocastIsThatOfTheFirstRun) {
  const at::Tensor x = Leaf(Line(8, 8)), weight = Leaf(Line(8, 8));
  std::vector<at::ScalarType> seen;
  const RecomputedForward part = [&](Tensors inputs) {
    at::Tensor y = inputs[0].matmul(weight);
    seen.push_back(y.scalar_type());
    return Tensors{y};
  };
  Tensors y;
  {
    const precision::AutocastScope autocast(at::kBFloat16, c10::kCPU);
    y = Recompute(part, {x}, {.trains = true});
  }
  y[0].sum().backward();
  EXPECT_EQ(seen, (std::vector<at::ScalarType>{at::kBFloat16, at::kBFloat16}));
}

TEST(RecomputeTest, AnInputThatPassesThroughAndOnesThatAreNotThere) {
  const at::Tensor x = Leaf(Line(2, 2));
  const at::Tensor ids = at::ones({2}, at::kLong);
  const Tensors out = Recompute(
      [](Tensors in) {
        return Tensors{in[0], in[1], in[0] * 2.0, in[2]};
      },
      {x, at::Tensor(), ids});
  EXPECT_FALSE(out[1].defined());
  EXPECT_FALSE(out[3].requires_grad());
  (out[0] * 3.0 + out[2]).sum().backward();
  EXPECT_TRUE(x.grad().equal(at::full({2, 2}, 5.0)));
}

// On the CPU they are there already, and nothing has to be waited for.
TEST(RecomputeTest, InputsOnTheHostGiveTheSame) {
  const at::Tensor x = Leaf(Line(4, 3)), weight = Leaf(Line(3, 5));
  const Tensors out =
      Recompute(Layer(weight), {x}, {.trains = true, .keep_on_host = true, .synchronize = true});
  out[0].sum().backward();
  const at::Tensor expected = x.grad().clone();
  x.mutable_grad().reset();
  Layer(weight)({x})[0].sum().backward();
  EXPECT_TRUE(x.grad().equal(expected));
}

TEST(RecomputeTest, AnInputWithoutGradientThatPassesThroughGetsNone) {
  const at::Tensor mask = Line(2, 2);
  const Tensors out = Recompute(
      [](Tensors in) {
        return Tensors{in[0] * in[1], in[1]};
      },
      {Leaf(Line(2, 2)), mask});
  EXPECT_TRUE(out[0].requires_grad());
  EXPECT_FALSE(out[1].requires_grad());
  EXPECT_TRUE(out[1].is_same(mask));
}

TEST(RecomputeTest, GradientsFlowThroughComplexResults) {
  const at::Tensor x = Leaf(Line(2, 2));
  const Tensors out = Recompute([](Tensors in) { return Tensors{at::complex(in[0], in[0])}; }, {x});
  at::real(out[0]).sum().backward();
  EXPECT_TRUE(x.grad().equal(at::ones({2, 2})));
}

TEST(RecomputeTest, RecomputesOnlyUsedResults) {
  const at::Tensor x = Leaf(Line(2, 2));
  const Tensors out = Recompute([](Tensors in) { return Tensors{in[0] * 2.0, in[0] * 7.0}; }, {x});
  out[0].sum().backward();
  EXPECT_TRUE(x.grad().equal(at::full({2, 2}, 2.0)));
}

TEST(RecomputeTest, ParametersTrainWhereTheInputsDoNot) {
  const at::Tensor weight = Leaf(Line(3, 3));
  const Tensors out = Recompute(Layer(weight), {Line(3, 3)}, {.trains = true});
  out[0].sum().backward();
  EXPECT_TRUE(weight.grad().defined());
}

TEST(RecomputeTest, WithoutGradientsThePartJustRuns) {
  const c10::NoGradGuard no_grad;
  int runs = 0;
  const Tensors out = Recompute(
      [&](Tensors in) {
        ++runs;
        return in;
      },
      {Leaf(Line(2, 2))}, {.trains = true});
  EXPECT_FALSE(out[0].grad_fn());
  EXPECT_EQ(runs, 1);
}

TEST(RecomputeTest, AnInputThatWasChangedInBetweenIsRefused) {
  const at::Tensor x = Leaf(Line(2, 2));
  const at::Tensor input = x * 1.0;
  const Tensors out = Recompute([](Tensors in) { return Tensors{in[0] * in[0]}; }, {input});
  {
    const c10::NoGradGuard no_grad;
    input.add_(1.0);
  }
  try {
    out[0].sum().backward();
    FAIL() << "wrong gradients";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("modified by an inplace operation"));
  }
}

TEST(RecomputeTest, APartThatChangesItsInputInPlaceIsRefused) {
  const at::Tensor x = Leaf(Line(2, 2));
  const Tensors out = Recompute([](Tensors in) { return Tensors{in[0].mul_(3.0)}; }, {x * 1.0});
  EXPECT_THROW(out[0].sum().backward(), c10::Error);
}

TEST(RecomputeTest, AGraphThatIsKeptServesTwiceAndThenNoMore) {
  const at::Tensor x = Leaf(Line(2, 2));
  const at::Tensor y = Recompute([](Tensors in) { return Tensors{in[0] * in[0]}; }, {x})[0];
  const at::Tensor one = at::ones({2, 2});
  y.backward(one, /*retain_graph=*/true);
  y.backward(one);
  EXPECT_TRUE(x.grad().equal(x.detach() * 4.0));
  EXPECT_THROW(y.backward(one), c10::Error);
}

TEST(RecomputeTest, SumsTheTimesOfItsRuns) {
  ManualClock clock;
  RunTimes times;
  int runs = 0;
  const RecomputedForward part = [&](Tensors in) {
    clock.Advance(std::chrono::seconds(++runs));
    return Tensors{in[0] * 2.0};
  };
  const at::Tensor x = Leaf(Line(2, 2));
  for (int pass = 0; pass < 2; ++pass) {
    const at::Tensor y = Recompute(part, {x}, {.times = &times, .clock = &clock})[0];
    clock.Advance(std::chrono::hours(1));
    y.sum().backward();
  }
  EXPECT_EQ(times.first, std::chrono::seconds(1 + 3));
  EXPECT_EQ(times.again, std::chrono::seconds(2 + 4));
}

// Eight layers of which each keeps some tensors of a MiB: recomputed, one is left of each.
TEST(RecomputeTest, KeepsTheInputsOnly) {
  device::CountingAllocator& memory = device::CountingAllocator::Install();
  constexpr std::int64_t kRows = 1024, kWidth = 256, kMiB = kRows * kWidth * 4;
  static_assert(kMiB == 1 << 20);
  const RecomputedForward part = [](Tensors in) {
    at::Tensor y = in[0];
    for (int i = 0; i < 4; ++i) y = at::tanh(y * y + 0.5);
    return Tensors{y};
  };
  for (const bool recomputed : {false, true}) {
    const at::Tensor x = Leaf(at::ones({kRows, kWidth}));
    const std::int64_t before = memory.BytesOut();
    Tensors flow{x};
    for (int layer = 0; layer < 8; ++layer) {
      flow = recomputed ? Recompute(part, std::move(flow)) : part(std::move(flow));
    }
    const std::int64_t saved = memory.BytesOut() - before;
    const std::int64_t slack = std::int64_t{1} << 18;
    EXPECT_GE(saved, recomputed ? 8 * kMiB : 8 * 4 * kMiB);
    EXPECT_LE(saved, recomputed ? 8 * kMiB + slack : 8 * 12 * kMiB);
    flow[0].sum().backward();
  }
}

}  // namespace
}  // namespace ds::activation
