// Plans that gather ahead, keep what is used again and fetch shards from host memory train with the
// bits of the plan that does not.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/zero/storage/block_quantization.h"
#include "tests/ranks/residency_passes.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

TEST(Residency, GathersAheadWithTheSameBits) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const PassResult plain = RunPasses(world, {});
    constexpr std::int64_t kAll = 1 << 20;
    const std::vector<zero::ResidencyBudgets> budgets = {
        {.prefetch_bytes = 600},
        {.prefetch_bytes = kAll},
        {.prefetch_bytes = kAll, .max_live_bytes = 3000}};
    for (const zero::ResidencyBudgets& each : budgets) {
      const PassResult ahead = RunPasses(world, {.budgets = each});
      ExpectSameBits(ahead, plain);
      EXPECT_LE(ahead.gathers, plain.gathers);
    }
    // Two buckets in each layer, one of them frozen, one in the embedding, which the head reads
    // again, and in the head. The backward pass finds the last unit present.
    EXPECT_EQ(plain.gathers_in_forward, 1 + 3 * 2 + 2);
    EXPECT_EQ(plain.gathers - plain.gathers_in_forward, 3 * 2 + 1);
    const PassResult all = RunPasses(world, {.budgets = budgets[1]});
    EXPECT_EQ(all.gathers_in_forward, 1 + 3 * 2 + 1) << "the head finds the embedding kept";
    EXPECT_LT(all.gathers, plain.gathers);
  });
}

TEST(Residency, GathersNothingForABackwardThatReadsNoParameters) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    for (const bool overlap : {false, true}) {
      const PassResult plain = RunPasses(world, {.overlap = overlap});
      const PassResult without =
          RunPasses(world, {.overlap = overlap, .table_reads_backward = false});
      ExpectSameBits(without, plain);
      EXPECT_EQ(without.gathers_in_forward, plain.gathers_in_forward);
      EXPECT_EQ(without.gathers, plain.gathers - 1);
    }
  });
}

TEST(Residency, KeepsUnitsThatTheBackwardPassReuses) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const PassResult plain = RunPasses(world, {});
    const PassResult kept = RunPasses(world, {.budgets = {.reuse_bytes = 1 << 20}});
    ExpectSameBits(kept, plain);
    EXPECT_EQ(kept.gathers, kept.gathers_in_forward) << "all of it is there for the backward";
    EXPECT_LT(kept.gathers_in_forward, plain.gathers_in_forward);
  });
}

TEST(Residency, GathersSmallUnitsOnceAndThenWithEachUpdate) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const PassResult plain = RunPasses(world, {});
    // The largest parameter of a layer has 25 elements, the embedding 55, the head's own 5.
    const PassResult layers = RunPasses(world, {.budgets = {.persistent_parameter_bytes = 25 * 4}});
    ExpectSameBits(layers, plain);
    EXPECT_EQ(layers.gathers_in_forward, 2) << "the embedding, for itself and for the head";
    EXPECT_EQ(layers.gathers, layers.gathers_in_forward + 1) << "and for the first backward";
    EXPECT_EQ(layers.gathers_of_update, 3 + 1) << "what is trained of the layers, the head";
    EXPECT_EQ(plain.gathers_of_update, 0);
    const PassResult head = RunPasses(
        world, {.budgets = {.persistent_parameter_bytes = 25 * 4, .persistent_bytes = 128 * 4}});
    ExpectSameBits(head, plain);
    EXPECT_EQ(head.gathers_of_update, 1) << "no layer, of 256 elements with what is frozen";
  });
}

// allgather_bucket_size: updated parameters come in calls of at most so many elements.
TEST(Residency, PublishesByCallsOfAsManyElementsAsMayBe) {
  const TinyShape shape{.vocabulary = 200, .width = 40, .layers = 2};
  testing::RunRanks(2, [&](comm::Communicator& world) {
    for (const int stage : {1, 2}) {
      for (const bool overlap : {false, true}) {
        const auto run = [&](std::optional<std::int64_t> elements) {
          return RunPasses(
              world,
              {.stage = stage, .overlap = overlap, .shape = shape, .publish_elements = elements});
        };
        const PassResult plain = run({}), large = run(1 << 20), split = run(1000), least = run(0);
        for (const PassResult* each : {&large, &split, &least}) {
          ExpectSameBits(*each, plain);
          EXPECT_EQ(each->loss, plain.loss);
        }
        EXPECT_EQ(plain.gathers_of_update, 1 + 2 + 1);
        EXPECT_EQ(large.gathers_of_update, plain.gathers_of_update);
        EXPECT_EQ(split.gathers_of_update, 9 + 2 * 2 + 1) << "8064, 1792 and 128 elements";
        EXPECT_EQ(least.gathers_of_update, 63 + 2 * 14 + 1) << "64 of each rank";
      }
    }
  });
}

TEST(Residency, FetchesShardsFromTheHost) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      const PassResult plain = RunPasses(world, {.precision = precision});
      EXPECT_EQ(plain.most_fetched_bytes, 0) << "they are there";
      const std::vector<zero::ResidencyBudgets> budgets = {
          {},
          {.fetch_bytes = 300},
          {.prefetch_bytes = 600, .reuse_bytes = 900, .fetch_bytes = 1 << 20},
          {.prefetch_bytes = zero::ResidencyBudgets::kLargestNeed,
           .fetch_bytes = zero::ResidencyBudgets::kLargestNeed}};
      for (const zero::ResidencyBudgets& each : budgets) {
        for (const bool overlap : {false, true}) {
          const PassResult fetched = RunPasses(world, {.budgets = each,
                                                       .offloads_to_host = true,
                                                       .precision = precision,
                                                       .overlap = overlap});
          ExpectSameBits(fetched, plain);
          EXPECT_GT(fetched.most_fetched_bytes, 0);
          EXPECT_EQ(fetched.fetched_bytes, 0) << "they are where they rest";
        }
      }
    }
    EXPECT_EQ(RunPasses(world, {.stage = 2, .offloads_to_host = true}).most_fetched_bytes, 0);
  });
}

TEST(Residency, MovesABucketOfSeveralParameterGroupsByOneCall) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const PassResult one = RunPasses(world, {});
    const PassResult three = RunPasses(
        world, {.groups = [](int, const std::string& name, const at::Tensor&) {
          return optim::ParameterGroup{.weight_decay_factor = name.ends_with('w')   ? 0.5
                                                              : name.ends_with('b') ? 0.0
                                                                                    : 1.0};
        }});
    EXPECT_EQ(three.gathers_in_forward, one.gathers_in_forward);
    EXPECT_EQ(three.gathers, one.gathers);
    // The trained bucket of each layer, the embedding and the head.
    EXPECT_EQ(one.reductions, 3 + 2);
    EXPECT_EQ(three.reductions, one.reductions);
  });
}

// What is begun, what is waited for, and where between them blocks compute; of the embedding (E),
// layers (L) with their frozen vectors (s), and the head (h).
std::string Describe(const std::vector<std::string>& log) {
  std::string text;
  for (const std::string& event : log) {
    std::string word = event;
    for (const auto& [size, name] :
         {std::pair<std::string, std::string>{"8064", "E"}, {"1792", "L"}, {"128", "s"}}) {
      if (word.ends_with(size)) word.replace(word.size() - size.size(), size.size(), name);
    }
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

TEST(Residency, OverlapsGathersAndReductionsWithTheComputation) {
  const TinyShape shape{.vocabulary = 200, .width = 40, .layers = 2};
  testing::RunRanks(2, [&](comm::Communicator& world) {
    std::vector<std::string> log;
    RunPasses(world, {.budgets = {.prefetch_bytes = 4 * (1792 + 128), .reduce_bytes = 0},
                      .overlap = true,
                      .shape = shape,
                      .log = &log});
    EXPECT_EQ(Describe(log),
              "+gE +gL +gs =gE F0 +gL +gs =gL =gs F1 =gL =gs F2 +gE +gs =gE =gs F3 "
              "+gL +gs B3 +gL +gs +rs =gL =gs B2 =rs +rL =gL =gs B1 =rL +gE +rL =gE =rL +rE =rE");
  });
}

TEST(Residency, TrainsWithTheSameBitsWhenOverlapped) {
  using zero::ResidencyBudgets;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(stage);
      for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
        const PassResult plain = RunPasses(world, {.stage = stage, .precision = precision});
        const std::vector<ResidencyBudgets> budgets = {
            {},
            {.prefetch_bytes = ResidencyBudgets::kLargestNeed,
             .reduce_bytes = ResidencyBudgets::kLargestNeed},
            {.prefetch_bytes = 1 << 20, .reuse_bytes = 1 << 20, .reduce_bytes = 1 << 20},
            {.prefetch_bytes = 600, .persistent_parameter_bytes = 25 * 4}};
        for (const ResidencyBudgets& each : budgets) {
          ExpectSameBits(RunPasses(world, {.stage = stage,
                                           .budgets = each,
                                           .precision = precision,
                                           .overlap = true,
                                           .last = {1}}),
                         plain);
        }
      }
    }
    ExpectSameBits(RunPasses(world, {.offloads_to_host = true, .overlap = true}),
                   RunPasses(world, {}));
  });
}

TEST(Residency, SendsRoundedValuesWithTheSameBitsWhenOverlapped) {
  testing::RunRanks(4, [&](comm::Communicator& world) {
    const PassResult plain = RunPasses(world, {.plus_plus = true});
    for (const std::int64_t prefetch : {std::int64_t{0}, zero::ResidencyBudgets::kLargestNeed}) {
      ExpectSameBits(
          RunPasses(world,
                    {.budgets = {.prefetch_bytes = prefetch}, .overlap = true, .plus_plus = true}),
          plain);
    }
  });
}

// Gradients that travel in 4 bits, of the embedding (E) and two layers (L): each is on its way
// while the block before computes.
TEST(Residency, OverlapsTheExchangeOfRoundedGradients) {
  const TinyShape shape{.vocabulary = 200, .width = 40, .layers = 2};
  testing::RunRanks(2, [&](comm::Communicator& world) {
    std::vector<std::string> log;
    RunPasses(world, {.budgets = {.reduce_bytes = 0},
                      .overlap = true,
                      .shape = shape,
                      .log = &log,
                      .plus_plus = true});
    std::erase_if(log, [](const std::string& event) {
      return event[0] != 'B' && event[1] != 'a';  // what is not rounded
    });
    const auto bytes_of = [](std::int64_t shard) {  // with padding to whole blocks
      return std::to_string(2 * zero::CountQuantizedBytes(shard, zero::QuantizedBits::k4));
    };
    const std::string layer = "a" + bytes_of(2048), table = "a" + bytes_of(4096);
    EXPECT_THAT(log, ::testing::ElementsAre("B3", "B2", "+" + layer, "B1", "=" + layer, "+" + layer,
                                            "=" + layer, "+" + table, "=" + table));
  });
}

// A mean to which gradients are added, and which is reduced again, is the mean of all.
TEST(Residency, AMicroBatchMayFollowTheOneThatWasToBeTheLast) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    for (const int stage : {0, 1, 2}) {
      SCOPED_TRACE(stage);
      const PassResult plain = RunPasses(world, {.stage = stage});
      const PassResult twice = RunPasses(world, {.stage = stage, .overlap = true, .last = {0, 1}});
      ASSERT_EQ(plain.gradients.size(), twice.gradients.size());
      for (std::size_t i = 0; i < plain.gradients.size(); ++i) {
        EXPECT_TRUE(twice.gradients[i].allclose(plain.gradients[i], 0, 1e-6)) << i;
      }
    }
  });
}

TEST(Residency, UpdatesAUnitOnceItsGradientsHaveBeenReduced) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    for (const int stage : {1, 2, 3}) {
      const std::vector<at::Tensor> expected = RunPasses(world, {.stage = stage}).weights;
      for (const bool overlap : {false, true}) {
        SCOPED_TRACE(::testing::Message() << "stage " << stage << ", overlap " << overlap);
        const auto weights =
            RunPasses(world,
                      {.stage = stage,
                       .budgets = {.reuse_bytes = 1 << 20, .persistent_parameter_bytes = 100},
                       .offloads_to_host = stage == 3,
                       .overlap = overlap,
                       .updates = true})
                .weights;
        ASSERT_EQ(weights.size(), expected.size());
        for (std::size_t i = 0; i < weights.size(); ++i) {
          EXPECT_TRUE(weights[i].equal(expected[i])) << i;
        }
      }
    }
  });
}

TEST(Residency, GathersNothingThatIsNotSharded) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const Passes passes{.stage = 2, .budgets = {.prefetch_bytes = 1 << 20, .max_live_bytes = 1}};
    EXPECT_EQ(RunPasses(world, passes).gathers, 0);
  });
}

}  // namespace
}  // namespace ds::tests
