#include "runtime/zero/backward_entry.h"

#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace ds::zero {
namespace {

using ::testing::ElementsAre;

class BackwardEntryTest : public ::testing::Test {
 protected:
  // Says `name` when the backward pass computes the gradient of `tensor`.
  void Watch(const at::Tensor& tensor, const std::string& name) {
    tensor.register_hook([this, name](const at::Tensor&) { events_.push_back(name); });
  }
  std::function<void()> Say(const std::string& name) {
    return [this, name] { events_.push_back(name); };
  }

  std::vector<std::string> events_;
};

TEST_F(BackwardEntryTest, RunsAfterItsUsersAndBeforeItsProducers) {
  const at::Tensor weight1 = at::ones({2}).requires_grad_();
  const at::Tensor weight2 = at::ones({2}).requires_grad_();
  Watch(weight1, "weight 1");
  Watch(weight2, "weight 2");
  at::Tensor x = MarkBackwardEntry({(at::ones({2}) * weight1).tanh()}, Say("block 1"))[0];
  x = MarkBackwardEntry({(x * weight2).tanh()}, Say("block 2"))[0];
  x.sum().backward();
  EXPECT_THAT(events_, ElementsAre("block 2", "weight 2", "block 1", "weight 1"));
}

TEST_F(BackwardEntryTest, RunsOnceForSeveralTensorsWhenAllTheirGradientsAreThere) {
  const at::Tensor weight = at::ones({2}).requires_grad_();
  const auto outputs = MarkBackwardEntry({weight * 2, weight * 3}, Say("block"));
  (outputs[0] * outputs[1]).sum().backward();
  EXPECT_THAT(events_, ElementsAre("block"));
  EXPECT_TRUE(weight.grad().equal(at::ones({2}) * 12));
}

TEST_F(BackwardEntryTest, KeepsValuesAndLetsTheNextBlockWriteInPlace) {
  const at::Tensor weight = at::ones({2}).requires_grad_();
  at::Tensor x = MarkBackwardEntry({weight * 2}, Say("block"))[0];
  EXPECT_TRUE(x.equal(at::ones({2}) * 2));
  x.add_(1);
  (x * x).sum().backward();
  EXPECT_TRUE(weight.grad().equal(at::ones({2}) * 12));
}

TEST_F(BackwardEntryTest, IgnoresTensorsWithoutGradient) {
  const at::Tensor ids = at::ones({2});
  const auto outputs = MarkBackwardEntry({ids, at::Tensor()}, Say("block"));
  EXPECT_TRUE(outputs[0].is_same(ids));
  EXPECT_FALSE(outputs[1].defined());
  const at::Tensor weight = at::ones({2}).requires_grad_();
  c10::NoGradGuard no_grad;
  EXPECT_FALSE(MarkBackwardEntry({weight * 2}, Say("block"))[0].requires_grad());
}

}  // namespace
}  // namespace ds::zero
