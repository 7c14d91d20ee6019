// Optimizers over parameters and state that are kept in 16 bit.

#include <gtest/gtest.h>

#include <tuple>

#include "runtime/optim/optimizer.h"
#include "tests/unit/optim/emulated_launch.h"
#include "tests/unit/optim/optimizer_slices.h"

namespace ds::optim {
namespace {

// More than two blocks, the last one shorter.
constexpr std::int64_t kCount = 64 * (2 * 1024 + 3);

OptimizerSlice Narrowed(const OptimizerSlice& slice, at::ScalarType parameter,
                        at::ScalarType state) {
  OptimizerSlice narrow = CopyOf(slice);
  narrow.parameter = narrow.parameter.to(parameter);
  for (at::Tensor& each : narrow.state) each = each.to(state);
  return narrow;
}

class NarrowSlices : public ::testing::TestWithParam<config::OptimizerAlgorithm> {};

// By a scale of 1 gradients are taken as they are; elements go by pairs, and the last one may be
// alone.
TEST_P(NarrowSlices, ComputesInFp32AndRoundsOnce) {
  const auto optimizer = MakeOptimizer({.weight_decay = 0.1, .algorithm = GetParam()});
  for (const auto& [launch, scale, count] : {std::tuple{FlatUpdate{nullptr}, 0.3, kCount},
                                             {FlatUpdate{nullptr}, 1.0, kCount + 37},
                                             {FlatUpdate{nullptr}, 0.3, std::int64_t{1}},
                                             {FlatUpdate{&EmulatedUpdate}, 0.3, kCount}}) {
    const Update update{.lr = 1e-2, .gradient_scale = scale, .step = 3};
    for (const auto& [parameter, state] : {std::pair{at::kBFloat16, at::kBFloat16},
                                           {at::kBFloat16, at::kFloat},
                                           {at::kHalf, at::kFloat},
                                           {at::kHalf, at::kHalf}}) {
      OptimizerSlice narrow = Narrowed(RandomPart(*optimizer, count), parameter, state);
      narrow.gradient = narrow.gradient.to(parameter);
      narrow.launch = launch;
      narrow.group.weight_decay_factor = 0.25;
      OptimizerSlice wide = Narrowed(narrow, at::kFloat, at::kFloat);
      wide.gradient = narrow.gradient.mul(update.gradient_scale);
      optimizer->Apply(update, narrow);
      optimizer->Apply({.lr = update.lr, .step = update.step}, wide);
      EXPECT_TRUE(SameBits(narrow, Narrowed(wide, parameter, state)));
    }
  }
}

TEST_P(NarrowSlices, RoundsOnlyTheStateWithFp32Weights) {
  const auto optimizer = MakeOptimizer({.weight_decay = 0.1, .algorithm = GetParam()});
  const Update update{.lr = 1e-2, .gradient_scale = 0.3, .step = 3};
  for (const FlatUpdate launch : {FlatUpdate{nullptr}, FlatUpdate{&EmulatedUpdate}}) {
    OptimizerSlice narrow = Narrowed(RandomPart(*optimizer, kCount), at::kFloat, at::kBFloat16);
    narrow.launch = launch;
    OptimizerSlice wide = Narrowed(narrow, at::kFloat, at::kFloat);
    optimizer->Apply(update, narrow);
    optimizer->Apply(update, wide);
    EXPECT_TRUE(SameBits(narrow, Narrowed(wide, at::kFloat, at::kBFloat16)));
  }
}

INSTANTIATE_TEST_SUITE_P(Elementwise, NarrowSlices,
                         ::testing::Values(config::AdamConfig{},
                                           config::AdamConfig{.adam_w_mode = false},
                                           config::SgdConfig{.momentum = 0.8}, config::SgdConfig{},
                                           config::AdagradConfig{}, config::LionConfig{}));

}  // namespace
}  // namespace ds::optim
