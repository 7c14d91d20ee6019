#include "runtime/comm/compressed_all_reduce.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/support/rank_harness.h"

namespace ds::comm {
namespace {

using ds::testing::RunRanks;

// What rank `rank` brings in round `round`.
at::Tensor Values(int rank, int round, std::int64_t count) {
  const at::Tensor values = at::arange(count, at::kFloat);
  return (values * 0.37 + rank * 1.3 + round * 0.7).sin() * (1.0 + rank);
}

at::Tensor SignsOf(const at::Tensor& x) { return x.ge(0).to(at::kFloat) * 2 - 1; }

// The definition, in one process: buffers and worker errors by rank, server errors by part.
struct Simulated {
  Simulated(int ranks, std::int64_t padded)
      : worker(at::zeros({ranks, padded})), server(at::zeros({ranks, padded / ranks})) {}

  at::Tensor Average(const std::vector<at::Tensor>& buffers) {
    const auto ranks = static_cast<std::int64_t>(buffers.size());
    at::Tensor mean = at::zeros_like(worker[0]);
    for (std::int64_t r = 0; r < ranks; ++r) {
      at::Tensor x = worker[r].clone();
      x.narrow(0, 0, buffers[0].numel()).add_(buffers[static_cast<std::size_t>(r)]);
      const at::Tensor kept = SignsOf(x) * (x.norm() / std::sqrt(x.numel()));
      worker[r].copy_(x - kept);
      mean.add_(kept / ranks);
    }
    mean = mean.view({ranks, -1});
    for (std::int64_t r = 0; r < ranks; ++r) {
      const at::Tensor y = mean[r] + server[r];
      const at::Tensor kept = SignsOf(y) * (y.norm() / std::sqrt(y.numel()));
      server[r].copy_(y - kept);
      mean[r].copy_(kept);
    }
    return mean.flatten().narrow(0, 0, buffers[0].numel());
  }

  at::Tensor worker, server;
};

class CompressedAllReduceTest : public ::testing::TestWithParam<int> {};

TEST_P(CompressedAllReduceTest, IsItsDefinitionOverManyRoundsAndBuffers) {
  const int ranks = GetParam();
  const std::int64_t unit = ranks * std::lcm(ranks, 8);
  RunRanks(ranks, [&](Communicator& world) {
    CompressedAllReduce collective(world, nullptr);
    const std::int64_t counts[] = {5, unit, 3 * unit + 1};
    std::vector<Simulated> expected;
    for (const std::int64_t count : counts) {
      expected.emplace_back(ranks, (count + unit - 1) / unit * unit);
    }
    for (int round = 0; round < 6; ++round) {
      std::vector<at::Tensor> buffers;
      for (const std::int64_t count : counts) {
        buffers.push_back(Values(world.rank(), round, count));
      }
      collective.Average(buffers);
      for (std::size_t i = 0; i < buffers.size(); ++i) {
        std::vector<at::Tensor> everyones;
        for (int r = 0; r < ranks; ++r) everyones.push_back(Values(r, round, counts[i]));
        const at::Tensor mean = expected[i].Average(everyones);
        EXPECT_TRUE(at::allclose(buffers[i], mean, 1e-5, 1e-6)) << round << " " << i;
      }
    }
  });
}

TEST_P(CompressedAllReduceTest, LaterCallsIncludeTheErrorOfEarlierOnes) {
  const int ranks = GetParam();
  RunRanks(ranks, [&](Communicator& world) {
    CompressedAllReduce collective(world, nullptr);
    const at::Tensor mine = Values(world.rank(), 0, 500);
    at::Tensor mean = at::zeros({500});
    for (int r = 0; r < ranks; ++r) mean += Values(r, 0, 500) / ranks;
    at::Tensor sum = at::zeros({500});
    constexpr int kCalls = 200;
    for (int call = 0; call < kCalls; ++call) {
      const at::Tensor buffer = mine.clone();
      collective.Average({buffer});
      if (call == 0) {
        EXPECT_GT((buffer - mean).abs().max().item<float>(), 0.1F);
      }
      sum += buffer;
    }
    EXPECT_LT((sum / kCalls - mean).abs().max().item<float>(), 0.1F);
  });
}

TEST_P(CompressedAllReduceTest, LeavesTheSameBitsOnEveryRank) {
  RunRanks(GetParam(), [&](Communicator& world) {
    CompressedAllReduce collective(world, nullptr);
    for (int round = 0; round < 3; ++round) {
      const at::Tensor mine = Values(world.rank(), round, 70).view({7, 10});
      collective.Average({mine});
      const at::Tensor first = mine.clone();
      world.Broadcast(first, 0);
      EXPECT_TRUE(at::equal(mine, first));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CompressedAllReduceTest, ::testing::Values(2, 3, 4));

TEST(CompressedAllReduce, BooksItsErrorsUntilTheyAreForgotten) {
  using device::MemoryTier;
  using device::MemoryUse;
  RunRanks(2, [](Communicator& world) {
    device::MemoryLedger ledger;
    CompressedAllReduce collective(world, &ledger);
    const auto booked = [&] { return ledger.Bytes(MemoryUse::kOptimizerState, MemoryTier::kHost); };
    const at::Tensor first = Values(world.rank(), 0, 100);
    const at::Tensor again = first.clone();
    EXPECT_EQ(booked(), 0);
    collective.Average({first});
    EXPECT_EQ(booked(), 4 * (112 + 56));  // padded to 2 * 8
    collective.ForgetErrors();
    EXPECT_EQ(booked(), 0);
    collective.Average({again});
    EXPECT_TRUE(at::equal(first, again));
  });
}

TEST(CompressedAllReduce, OneRankKeepsItsValues) {
  RunRanks(1, [](Communicator& world) {
    CompressedAllReduce collective(world, nullptr);
    const at::Tensor mine = Values(0, 0, 10);
    collective.Average({mine});
    EXPECT_TRUE(at::equal(mine, Values(0, 0, 10)));
  });
}

}  // namespace
}  // namespace ds::comm
