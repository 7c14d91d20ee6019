// Routes without capacity: which experts, in which order, and what is added up of them.

#include "runtime/parallel/expert/routing.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <numeric>

namespace ds::moe {
namespace {

at::Tensor ExpertsOfThree() { return at::tensor({2, 0, 2, 3, 0, 2}, at::kLong).view({3, 2}); }

TEST(Routing, WeightsAreTheLargestProbabilities) {
  const at::Tensor logits = at::tensor({1.0F, 3.0F, 2.0F, 0.0F}).view({1, 4});
  const at::Tensor all = at::softmax(logits, -1);
  const Choice plain = ChooseExperts(logits, {.k = 2, .normalises = false});
  EXPECT_TRUE(plain.experts.equal(at::tensor({1, 2}, at::kLong).view({1, 2})));
  EXPECT_TRUE(plain.weights.equal(all.index_select(1, plain.experts[0])));
  const Choice full = ChooseExperts(logits, {.k = 2});
  EXPECT_FLOAT_EQ(full.weights.sum().item<float>(), 1.0F);
}

// The second most probable expert is of a group whose best one comes third.
TEST(Routing, ExpertsAreOfTheGroupsThatHaveTheMostProbable) {
  const at::Tensor logits = at::tensor({0.0F, 5.0F, 4.0F, 1.0F, 2.0F, 4.5F}).view({1, 6});
  const RouteRule rule{.k = 3, .normalises = false, .scale = 2.5, .groups = 3, .topk_groups = 2};
  const Choice choice = ChooseExperts(logits, rule);
  EXPECT_TRUE(choice.experts.equal(at::tensor({1, 5, 4}, at::kLong).view({1, 3})));
  const at::Tensor all = at::softmax(logits, -1);
  EXPECT_TRUE(choice.probabilities.equal(all)) << "loads are judged by all";
  EXPECT_TRUE(choice.weights.allclose(all.index_select(1, choice.experts[0]) * 2.5));
}

TEST(Routing, RoutesAreSortedByExpertAndThenByToken) {
  const SortedRoutes routes(ExpertsOfThree(), 5);
  EXPECT_EQ(routes.counts(), (std::vector<std::int64_t>{2, 0, 3, 1, 0}));
  const at::Tensor x = at::arange(3, at::kFloat).view({3, 1});
  const at::Tensor expected = at::tensor({0.0F, 2.0F, 0.0F, 1.0F, 2.0F, 1.0F}).view({6, 1});
  EXPECT_TRUE(routes.SpreadRows(x).equal(expected));
  const at::Tensor values = at::arange(6, at::kFloat).view({3, 2});
  EXPECT_TRUE(routes.SortValues(values).equal(at::tensor({1.0F, 4.0F, 0.0F, 2.0F, 5.0F, 3.0F})));
}

TEST(Routing, ASumReversesASpread) {
  const SortedRoutes routes(ExpertsOfThree(), 5);
  const at::Tensor x = at::randn({3, 4}).requires_grad_();
  const at::Tensor sum = routes.SumRows(routes.SpreadRows(x) * 3.0);
  EXPECT_TRUE(sum.equal(x * 3.0 + x * 3.0));
  const at::Tensor upstream = at::randn({3, 4});
  sum.backward(upstream);
  EXPECT_TRUE(x.grad().allclose(upstream * 6.0));
}

// Expert 5 of five stands for none.
TEST(Routing, ADroppedRouteHasNoRow) {
  const at::Tensor experts = at::tensor({2, 5, 0, 2, 5, 5}, at::kLong).view({3, 2});
  const SortedRoutes routes(experts, 5);
  EXPECT_EQ(routes.counts(), (std::vector<std::int64_t>{1, 0, 2, 0, 0}));
  const at::Tensor x = at::randn({3, 4}).requires_grad_();
  const at::Tensor rows = routes.SpreadRows(x);
  EXPECT_TRUE(rows.equal(at::stack({x[1], x[0], x[1]})));
  const at::Tensor values = at::arange(6, at::kFloat).view({3, 2});
  EXPECT_TRUE(routes.SortValues(values).equal(at::tensor({2.0F, 0.0F, 3.0F})));
  const at::Tensor sum = routes.SumRows(rows * 3.0);
  EXPECT_TRUE(sum.allclose(at::stack({x[0] * 3.0, x[1] * 6.0, x[2] * 0.0})));
  const at::Tensor upstream = at::randn({3, 4});
  sum.backward(upstream);
  EXPECT_TRUE(
      x.grad().allclose(at::stack({upstream[0] * 3.0, upstream[1] * 6.0, upstream[2] * 0.0})));
}

TEST(Routing, ABalancedLoadHasTheLeastLoss) {
  const auto loss_of = [](const at::Tensor& routes) {
    return BalanceLoss({.routes = routes, .probabilities = routes / 2.0}, 2).item<float>();
  };
  EXPECT_FLOAT_EQ(loss_of(at::ones({4}) * 6.0), 2.0F);
  EXPECT_FLOAT_EQ(loss_of(at::tensor({12.0F, 12.0F, 0.0F, 0.0F})), 4.0F);
  EXPECT_EQ(loss_of(at::zeros({4})), 0.0F) << "of no token";
}

TEST(Routing, TokensThatTheMaskLeavesOutAreNoLoad) {
  const Choice choice = ChooseExperts(at::randn({3, 4}), {.k = 2});
  const Choice first = {.probabilities = choice.probabilities.narrow(0, 0, 2),
                        .experts = choice.experts.narrow(0, 0, 2),
                        .weights = choice.weights.narrow(0, 0, 2)};
  const ExpertLoad masked = MeasureLoad(choice, at::tensor({1, 1, 0}, at::kLong));
  const ExpertLoad expected = MeasureLoad(first, {});
  EXPECT_TRUE(masked.routes.equal(expected.routes));
  EXPECT_TRUE(masked.probabilities.allclose(expected.probabilities));
}

TEST(Routing, TokensWithoutRoutesHaveNoRowsAndNoLoad) {
  const Choice all = ChooseExperts(at::randn({3, 4}), {.k = 2});
  const at::Tensor padding = at::tensor({0, 1, 0}).to(at::kBool);
  const Choice choice = DropRoutes(all, padding);
  const SortedRoutes routes(choice.experts, 4);
  EXPECT_EQ(std::accumulate(routes.counts().begin(), routes.counts().end(), std::int64_t{0}), 4);
  const at::Tensor x = at::randn({3, 8});
  const at::Tensor sum = routes.SumRows(routes.SpreadRows(x));
  EXPECT_TRUE(sum.allclose(at::stack({x[0] * 2.0, x[1] * 0.0, x[2] * 2.0})));
  const ExpertLoad load = MeasureLoad(choice, padding.logical_not());
  const ExpertLoad expected = MeasureLoad(all, padding.logical_not());
  EXPECT_TRUE(load.routes.equal(expected.routes));
  EXPECT_TRUE(load.probabilities.equal(expected.probabilities));
}

}  // namespace
}  // namespace ds::moe
