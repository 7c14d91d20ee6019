// Rows of tokens go to the ranks that have their experts, and come back in their order.

#include "runtime/parallel/expert/token_exchange.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/rank_harness.h"

namespace ds::moe {
namespace {

using Counts = std::vector<std::int64_t>;

// Rows of rank r for each of the experts: some have none of a rank, one has none at all.
Counts CountsOf(int rank, std::int64_t experts) {
  Counts counts;
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    counts.push_back(expert == 1 ? 0 : (rank * 3 + expert * 2) % 4);
  }
  return counts;
}

// Rows of three values: the rank, the expert, and the number of the row among those of both.
at::Tensor RowsOf(int rank, std::int64_t experts) {
  std::vector<float> values;
  const Counts counts = CountsOf(rank, experts);
  for (std::size_t expert = 0; expert < counts.size(); ++expert) {
    for (std::int64_t row = 0; row < counts[expert]; ++row) {
      for (const auto value : {std::int64_t{rank}, static_cast<std::int64_t>(expert), row}) {
        values.push_back(static_cast<float>(value));
      }
    }
  }
  return at::tensor(values).view({-1, 3});
}

// What comes to the experts of a rank, in order.
at::Tensor ArrivingAt(int rank, int ranks, std::int64_t experts) {
  std::vector<float> values;
  const std::int64_t own = experts / ranks;
  for (std::int64_t expert = rank * own; expert < (rank + 1) * own; ++expert) {
    for (int from = 0; from < ranks; ++from) {
      const std::int64_t count = CountsOf(from, experts)[static_cast<std::size_t>(expert)];
      for (std::int64_t row = 0; row < count; ++row) {
        for (const auto value : {std::int64_t{from}, expert, row}) {
          values.push_back(static_cast<float>(value));
        }
      }
    }
  }
  return at::tensor(values).view({-1, 3});
}

TEST(TokenExchange, RowsComeSortedByExpertAndGoBack) {
  for (const int ranks : {1, 2, 4}) {
    for (const std::int64_t experts : {4, 12}) {
      testing::RunRanks(ranks, [&](comm::Communicator& world) {
        const TokenExchange exchange(ExpertGroup(world), CountsOf(world.rank(), experts));
        const at::Tensor rows = RowsOf(world.rank(), experts);
        const at::Tensor arrived = exchange.Send(rows);
        EXPECT_TRUE(arrived.equal(ArrivingAt(world.rank(), ranks, experts)));
        const Counts& counts = exchange.own_counts();
        EXPECT_EQ(counts.size(), static_cast<std::size_t>(experts / ranks));
        EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), arrived.size(0));
        EXPECT_TRUE(exchange.Return(arrived).equal(rows));
      });
    }
  }
}

// An expert multiplies its rows by its number and one: so are their gradients.
TEST(TokenExchange, GradientsGoTheOppositeWays) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    constexpr std::int64_t kExperts = 6;
    const TokenExchange exchange(ExpertGroup(world), CountsOf(world.rank(), kExperts));
    const at::Tensor rows = RowsOf(world.rank(), kExperts).requires_grad_();
    const at::Tensor arrived = exchange.Send(rows);
    const at::Tensor number = arrived.detach().narrow(1, 1, 1) + 1;
    const at::Tensor back = exchange.Return(arrived * number);
    const at::Tensor upstream =
        at::arange(rows.numel(), at::kFloat).view_as(rows) + world.rank() * 100;
    back.backward(upstream);
    EXPECT_TRUE(rows.grad().equal(upstream * (rows.detach().narrow(1, 1, 1) + 1)));
  });
}

TEST(TokenExchange, NoRowsAreAllRight) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const TokenExchange exchange(ExpertGroup(world), Counts(4, 0));
    const at::Tensor rows = at::arange(0, at::kFloat).view({0, 3}).requires_grad_();
    const at::Tensor back = exchange.Return(exchange.Send(rows));
    EXPECT_EQ(back.sizes(), rows.sizes());
    back.sum().backward();
    EXPECT_EQ(rows.grad().sizes(), rows.sizes());
  });
}

}  // namespace
}  // namespace ds::moe
