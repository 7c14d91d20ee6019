#include "runtime/optim/muon.h"

#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/rank_harness.h"
#include "tests/unit/optim/emulated_launch.h"
#include "tests/unit/optim/optimizer_slices.h"

namespace ds::optim {
namespace {

using config::NewtonSchulz;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Muon, OrthogonalisedMatricesHaveSingularValuesAboutOne) {
  for (const auto& [rows, columns] : {std::pair{8, 8}, {4, 40}, {40, 4}, {16, 31}}) {
    const at::Tensor matrix = at::randn({rows, columns});
    const at::Tensor gram = FindOrthogonal(matrix, NewtonSchulz::kGram);
    const at::Tensor standard = FindOrthogonal(matrix, NewtonSchulz::kStandard);
    EXPECT_LT(Distance(gram, standard), 1e-4) << rows << " x " << columns;
    // The iteration flattens what is above a hundredth of the matrix's length; random rectangles
    // have nothing below.
    if (rows == columns) continue;
    const at::Tensor values = at::linalg_svdvals(gram);
    EXPECT_GT(values.min().item<double>(), 0.6) << rows << " x " << columns;
    EXPECT_LT(values.max().item<double>(), 1.3) << rows << " x " << columns;
  }
  EXPECT_EQ(FindOrthogonal(at::zeros({3, 4}), NewtonSchulz::kGram).abs().max().item<float>(), 0.0F);
}

TEST(Muon, TakesMatricesThatAreNoEmbeddings) {
  const std::int64_t matrix[] = {2, 3}, vector[] = {3};
  EXPECT_TRUE(IsMuonMatrix("transformer.h.0.attn.c_attn.weight", matrix));
  EXPECT_FALSE(IsMuonMatrix("transformer.h.0.attn.c_attn.bias", vector));
  EXPECT_FALSE(IsMuonMatrix("model.Embed_tokens.weight", matrix));
  EXPECT_FALSE(IsMuonMatrix("lm_head.weight", matrix));
}

OptimizerSlice RandomMatrix(const Optimizer& optimizer, std::int64_t rows, std::int64_t columns) {
  OptimizerSlice slice = RandomPart(optimizer, rows * columns);
  slice.group.muon = true;
  slice.state.resize(1);
  slice.full_numel = rows * columns;
  slice.full_parameters = {{.start = 0, .shape = {rows, columns}}};
  return slice;
}

TEST(Muon, LaunchesMatchTheKernels) {
  Muon kernels({}, /*weight_decay=*/0.1), launches({}, /*weight_decay=*/0.1);
  const OptimizerSlice ours = RandomMatrix(kernels, 24, 16);
  OptimizerSlice theirs = CopyOf(ours);
  theirs.launch = &EmulatedUpdate;
  for (int step = 1; step <= 3; ++step) {
    theirs.gradient.copy_(ours.gradient);
    Step(kernels, {.lr = 0.02, .gradient_scale = 0.5, .step = step}, {ours});
    Step(launches, {.lr = 0.02, .gradient_scale = 0.5, .step = step}, {theirs});
  }
  EXPECT_LT(Distance(ours.parameter, theirs.parameter), 2e-6);
  EXPECT_LT(Distance(ours.state[0], theirs.state[0]), 1e-6);
}

// Matrices of equal size, gathered or added up together, would be neither's.
TEST(Muon, RanksDoNotMixTheirMatrices) {
  for (const bool sharded : {false, true}) {
    std::string message = "nothing has been thrown";
    try {
      testing::RunRanks(2, [&](comm::Communicator& world) {
        Muon muon({}, /*weight_decay=*/0.0);
        OptimizerSlice slice = RandomMatrix(muon, 4, 4);
        slice.sharded = sharded;
        slice.full_numel *= sharded ? 2 : 1;
        slice.full_start = sharded ? world.rank() * 16 : 0;
        slice.full_parameters[0].name = world.rank() == 0 ? "query" : "key";
        muon.Begin({}, {.groups = {.all = &world, .gradients = &world, .shards = &world}});
        muon.ApplyRates({}, slice);
      });
    } catch (const c10::Error& error) {
      message = error.what_without_backtrace();
    }
    EXPECT_THAT(message, AllOf(HasSubstr("for query"), HasSubstr("for key"))) << sharded;
  }
}

TEST(Muon, AStackOfMatricesIsOrthogonalisedOneByOne) {
  Muon muon({}, /*weight_decay=*/0.0);
  OptimizerSlice stack = RandomMatrix(muon, 12, 8);
  stack.full_parameters[0].shape = {3, 4, 8};
  const OptimizerSlice full = CopyOf(stack);
  Step(muon, {.lr = 0.02, .step = 1}, {stack});
  for (int i = 0; i < 3; ++i) {
    OptimizerSlice one = Cut(full, i * 32, 32);
    one.group.muon = true;
    one.full_numel = 32;
    one.full_parameters = {{.start = 0, .shape = {4, 8}}};
    Step(muon, {.lr = 0.02, .step = 1}, {one});
  }
  EXPECT_TRUE(stack.parameter.equal(full.parameter));
}

}  // namespace
}  // namespace ds::optim
