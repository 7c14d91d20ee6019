// A gradient is put where a sink wants it, and goes the ordinary way where anybody looks at it.

#include "runtime/autograd/put_gradient.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tests/support/summing_sink.h"

namespace ds::gradients {
namespace {

using ::ds::testing::SummingSink;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// x times a weight; writes the weight's gradient itself where it may.
class Scale : public torch::autograd::Function<Scale> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    return x * weight;
  }
  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor gradient = upstream[0] * saved[0];
    const auto write = [&](at::Tensor& target, float beta) {
      beta == 0.0F ? target.copy_(gradient) : target.add_(gradient);
    };
    return {upstream[0] * saved[1], PutGradient(saved[1], write) ? at::Tensor() : gradient};
  }
};

class PutGradientTest : public ::testing::Test {
 protected:
  at::Tensor Loss(const at::Tensor& x) const { return Scale::apply(x, weight_).sum(); }

  const at::Tensor x_ = at::tensor({1.0, 2.0, 4.0});
  const at::Tensor weight_ = at::ones({3}, at::kDouble).set_requires_grad(true);
  const std::shared_ptr<const SummingSink::Sum> sum_ = SummingSink::Attach(weight_);
};

TEST_F(PutGradientTest, TheSecondIsAddedToTheFirst) {
  (Loss(x_) + Loss(x_ * 2)).backward();
  Loss(x_).backward();
  EXPECT_EQ(sum_->puts, 3);
  EXPECT_EQ(sum_->arrivals, 0);
  EXPECT_TRUE(sum_->gradient.equal(x_ * 4));
  EXPECT_FALSE(weight_.grad().defined());
}

TEST_F(PutGradientTest, AddsGradientsOfOtherUsesOfTheParameter) {
  (Loss(x_) + (weight_ * 3).sum()).backward();
  EXPECT_EQ(sum_->puts, 1);
  EXPECT_EQ(sum_->arrivals, 1);
  EXPECT_TRUE(sum_->gradient.equal(x_ + 3));
}

TEST_F(PutGradientTest, WithoutASinkItGoesTheOrdinaryWay) {
  const at::Tensor weight = at::ones({3}, at::kDouble).set_requires_grad(true);
  Scale::apply(x_, weight).sum().backward();
  EXPECT_TRUE(weight.grad().equal(x_));
  EXPECT_FALSE(PutGradient(at::ones({3}), [](at::Tensor&, float) { FAIL(); })) << "a constant";
}

TEST_F(PutGradientTest, AHookOfAUserSeesIt) {
  int calls = 0;
  weight_.register_hook([&](const at::Tensor& gradient) {
    ++calls;
    return gradient * 10;
  });
  Loss(x_).backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(sum_->puts, 0);
  EXPECT_TRUE(sum_->gradient.equal(x_ * 10));
}

TEST_F(PutGradientTest, AGradientThatIsThereIsAddedToFirst) {
  weight_.mutable_grad() = at::ones({3}, at::kDouble);
  Loss(x_).backward();
  EXPECT_EQ(sum_->puts, 0);
  EXPECT_TRUE(sum_->gradient.equal(x_ + 1));
}

TEST_F(PutGradientTest, ReturnsItOnRequest) {
  const variable_list asked = torch::autograd::grad({Loss(x_)}, {weight_});
  EXPECT_TRUE(asked[0].equal(x_));
  EXPECT_EQ(sum_->puts + sum_->arrivals, 0);
}

TEST_F(PutGradientTest, APassForOtherInputsOnlyLeavesItOut) {
  const at::Tensor x = x_.clone().set_requires_grad(true);
  torch::autograd::grad({Loss(x)}, {x});
  EXPECT_EQ(sum_->puts + sum_->arrivals, 0);
}

TEST_F(PutGradientTest, ABackwardPassThatIsRecordedKeepsItsGraph) {
  const at::Tensor x = x_.clone().set_requires_grad(true);
  torch::autograd::backward({Loss(x)}, {}, /*retain_graph=*/true, /*create_graph=*/true);
  EXPECT_EQ(sum_->puts, 0);
  EXPECT_EQ(sum_->arrivals, 1);
}

}  // namespace
}  // namespace ds::gradients
