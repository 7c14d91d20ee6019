// What the goldens of tests/numerics do not show of the 1-bit optimizers.

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/optim/one_bit/one_bit_average.h"
#include "runtime/optim/one_bit/zero_one_adam.h"
#include "runtime/optim/optimizer.h"
#include "tests/support/rank_harness.h"
#include "tests/unit/optim/optimizer_slices.h"

namespace ds::optim {
namespace {

using config::OptimizerAlgorithm;

TEST(ZeroOneIntervals, DoubleAsConfigured) {
  const ZeroOneIntervals intervals({.var_freeze_step = 9,
                                    .var_update_scaler = 2,
                                    .local_step_scaler = 2,
                                    .local_step_clipper = 4});
  std::string kinds;
  for (int update = 1; update <= 19; ++update) {
    switch (intervals.At(update)) {
      case ZeroOneUpdate::kRefresh:
        kinds += 'R';
        break;
      case ZeroOneUpdate::kOneBit:
        kinds += 'B';
        break;
      case ZeroOneUpdate::kLocal:
        kinds += 'L';
        break;
      case ZeroOneUpdate::kExchange:
        kinds += 'E';
        break;
    }
  }
  EXPECT_EQ(kinds, "RRRBRBRBBEELELELLLE");
  // In any order, as after a rewind.
  EXPECT_EQ(intervals.At(4), ZeroOneUpdate::kOneBit);
  EXPECT_EQ(intervals.At(12), ZeroOneUpdate::kLocal);
}

// With a scaler of 1 at every update: after 63 of them twice the interval is beyond 64 bits.
TEST(ZeroOneIntervals, DoubleUpToTheLargestClipper) {
  const ZeroOneIntervals intervals(
      {.var_freeze_step = 0, .local_step_scaler = 1, .local_step_clipper = INT64_MAX});
  for (int update = 1; update < 80; ++update) static_cast<void>(intervals.At(update));
  EXPECT_EQ(intervals.At(80), ZeroOneUpdate::kLocal);
}

constexpr std::int64_t kParameters = 100;

// One parameter of 60 elements and one of 30 behind padding.
OptimizerSlice TwoParameters(const Optimizer& optimizer) {
  OptimizerSlice slice{.parameter = at::arange(kParameters, at::kFloat).mul_(0.7).sin_(),
                       .gradient = at::zeros({kParameters})};
  for (std::size_t i = 0; i < optimizer.state_names({}).size(); ++i) {
    slice.state.push_back(at::zeros({kParameters}));
  }
  slice.segments = slice.owned = {{.parameter = 0, .start = 0, .count = 60},
                                  {.parameter = 1, .start = 64, .count = 30}};
  for (const std::int64_t start : {60, 94}) {
    slice.parameter.narrow(0, start, start == 60 ? 4 : 6).zero_();
  }
  return slice;
}

// Elements 5 to 9 and the second parameter's 70 to 79 never have a gradient.
at::Tensor GradientOf(int rank, std::int64_t step) {
  at::Tensor gradient =
      (at::arange(kParameters, at::kFloat) * 0.31 + rank + 2 * step).cos_().mul_(0.1 + rank);
  for (const auto& [start, count] : {std::pair{5, 5}, {60, 4}, {70, 10}, {94, 6}}) {
    gradient.narrow(0, start, count).zero_();
  }
  return gradient;
}

// Short phases.
const OptimizerAlgorithm kAlgorithms[] = {
    config::OneBitAdamConfig{.beta2 = 0.9, .eps = 1e-4, .freeze_step = 4},
    config::OneBitLambConfig{.beta2 = 0.9, .eps = 1e-4, .freeze_step = 4},
    config::ZeroOneAdamConfig{.beta2 = 0.9,
                              .eps = 1e-4,
                              .var_freeze_step = 6,
                              .var_update_scaler = 1,
                              .local_step_scaler = 2}};

// Update `step` by this rank's gradients, or their mean where the optimizer wants it.
void Train(Optimizer& optimizer, OptimizerSlice& slice, comm::Communicator& world,
           std::int64_t step) {
  slice.gradient = GradientOf(world.rank(), step);
  if (!optimizer.NeedsLocalGradients(step)) world.AllReduce(slice.gradient, comm::ReduceOp::kAvg);
  RankSlices all{.slices = {slice},
                 .parameter_count = 2,
                 .groups = {.all = &world, .gradients = &world, .shards = &world}};
  const Update update{.lr = 0.01, .step = step};
  optimizer.Begin(update, all);
  optimizer.Apply(update, slice);
}

class OneBit : public ::testing::TestWithParam<OptimizerAlgorithm> {};

TEST_P(OneBit, ElementsWithoutAGradientStayWhereTheyAre) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const auto optimizer = MakeOptimizer({.algorithm = GetParam()});
    OptimizerSlice slice = TwoParameters(*optimizer);
    const at::Tensor first = slice.parameter.clone();
    for (std::int64_t step = 1; step <= 16; ++step) Train(*optimizer, slice, world, step);
    const at::Tensor moved = slice.parameter.ne(first);
    for (std::int64_t i = 0; i < kParameters; ++i) {
      EXPECT_EQ(moved[i].item<bool>(), GradientOf(0, 1)[i].item<float>() != 0.0F) << i;
    }
  });
}

// 0/1 Adam's ranks differ between exchanges; its intervals here let them meet after update 15.
TEST_P(OneBit, RanksEndWithTheSameParametersAndTheirErrorsDoNotGrow) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const auto optimizer = MakeOptimizer({.algorithm = GetParam()});
    OptimizerSlice slice = TwoParameters(*optimizer);
    for (std::int64_t step = 1; step <= 15; ++step) Train(*optimizer, slice, world, step);
    const at::Tensor theirs = slice.parameter.clone();
    world.Broadcast(theirs, 0);
    EXPECT_LT(Distance(slice.parameter, theirs), 1e-6);
    EXPECT_LT(slice.parameter.abs().max().item<float>(), 2.0F);
  });
}

// A run that is saved and goes on has the same bits on one rank, where nothing is
// lost by compression.
TEST_P(OneBit, ResumesFromItsStateWithTheSameBits) {
  testing::RunRanks(1, [&](comm::Communicator& world) {
    for (const std::int64_t saved : {2, 3, 4, 5}) {
      const auto before = MakeOptimizer({.algorithm = GetParam()});
      OptimizerSlice slice = TwoParameters(*before);
      for (std::int64_t step = 1; step <= saved; ++step) Train(*before, slice, world, step);
      OptimizerSlice copy = CopyOf(slice);
      const auto after = MakeOptimizer({.algorithm = GetParam()});
      EXPECT_TRUE(after->LoadState(before->State(), 2).ok());
      for (std::int64_t step = saved + 1; step <= saved + 6; ++step) {
        Train(*before, slice, world, step);
        Train(*after, copy, world, step);
      }
      EXPECT_TRUE(SameBits(slice, copy)) << saved;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, OneBit, ::testing::ValuesIn(kAlgorithms));

// Three parts of two parameters each; the second part is of another parameter group.
RankSlices ThreeParts(comm::Communicator& world, bool masters) {
  RankSlices all{.parameter_count = 6,
                 .groups = {.all = &world, .gradients = &world, .shards = &world}};
  for (int i = 0; i < 3; ++i) {
    OptimizerSlice slice{.parameter = at::zeros({kParameters})};
    if (masters) slice.published = at::zeros({kParameters}, at::kHalf);
    slice.segments = {{.parameter = 2 * i, .start = 0, .count = 60},
                      {.parameter = 2 * i + 1, .start = 64, .count = 30}};
    if (i == 1) slice.group.weight_decay_factor = 0.0;
    all.slices.push_back(slice);
  }
  return all;
}

// The parameters of `views` that are compressed with one scale, by part and segment.
using Together = std::vector<std::vector<std::pair<std::size_t, std::size_t>>>;

void ExpectCompressedTogether(const RankSlices& all, const Together& together) {
  comm::CompressedAllReduce compressed(*all.groups.gradients, nullptr);
  OneBitAverage average;
  for (int round = 0; round < 3; ++round) {
    std::vector<at::Tensor> views, expected;
    for (int i = 0; i < 3; ++i)
      views.push_back(GradientOf(all.groups.gradients->rank() + i, round));
    const auto values = [&] {
      std::vector<at::Tensor> joined;
      for (const auto& parameters : together) {
        std::vector<at::Tensor> list;
        for (const auto& [slice, segment] : parameters) {
          const Segment& s = all.slices[slice].segments[segment];
          list.push_back(views[slice].narrow(0, s.start, s.count));
        }
        joined.push_back(at::cat(list));
      }
      return joined;
    };
    expected = values();
    compressed.Average(expected);
    average.Take(all, views);
    const std::vector<at::Tensor> ours = values();
    for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(at::equal(ours[i], expected[i])) << i;
  }
}

TEST(OneBitAverage, HasAScaleForEachParameter) {
  testing::RunRanks(2, [](comm::Communicator& world) {
    ExpectCompressedTogether(ThreeParts(world, /*masters=*/false),
                             {{{0, 0}}, {{0, 1}}, {{1, 0}}, {{1, 1}}, {{2, 0}}, {{2, 1}}});
  });
}

TEST(OneBitAverage, HasAScaleForEachGroupWhereThereAreMasters) {
  testing::RunRanks(2, [](comm::Communicator& world) {
    ExpectCompressedTogether(ThreeParts(world, /*masters=*/true),
                             {{{0, 0}, {0, 1}, {2, 0}, {2, 1}}, {{1, 0}, {1, 1}}});
  });
}

TEST(OneBitLamb, RefusesAnothersState) {
  const auto optimizer = MakeOptimizer({.algorithm = config::OneBitLambConfig{}});
  EXPECT_FALSE(optimizer->LoadState(nullptr, 2).ok());
  EXPECT_FALSE(optimizer->LoadState({{"trust", {{0.0, 1.0, 1.0}}}}, 2).ok());
  EXPECT_FALSE(optimizer->LoadState({{"trust", {{0.0, 1.0}, {0.0, 1.0}}}}, 2).ok());
  EXPECT_TRUE(optimizer->LoadState({{"trust", {{0.0, 1.0, 1.0}, {0.0, 1.0, 1.0}}}}, 2).ok());
}

}  // namespace
}  // namespace ds::optim
