// MiCS: the state is cut among groups of neighbouring ranks, each of which has all of it.

#include <gtest/gtest.h>

#include "runtime/device/memory_ledger.h"
#include "runtime/engine/tensor_access.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

constexpr int kMicsSteps = 3;

struct GroupsOutcome {
  std::vector<StepResult> steps;
  std::map<std::string, at::Tensor> parameters;
  std::vector<at::Tensor> weights;  // by rank: one parameter, as its group has it
  std::vector<std::int64_t> state_bytes;
};

GroupsOutcome TrainInGroups(const TinyRun& run, int world_size) {
  const auto count = static_cast<std::size_t>(world_size);
  GroupsOutcome outcome{.weights = std::vector<at::Tensor>(count),
                        .state_bytes = std::vector<std::int64_t>(count)};
  testing::RunRanks(world_size, [&](comm::Communicator& world) {
    device::MemoryLedger ledger;
    const auto engine = MakeTinyEngine(run, world, &ledger);
    auto steps = TrainTiny(*engine, run, kMicsSteps);
    auto parameters = ExportAll(*engine);
    const auto rank = static_cast<std::size_t>(world.rank());
    outcome.weights[rank] = TensorAccess(*engine).GetFullFp32Param("layer.1.w").value();
    outcome.state_bytes[rank] =
        ledger.Bytes(device::MemoryUse::kOptimizerState, device::MemoryTier::kHost);
    if (rank == 0) outcome.steps = std::move(steps), outcome.parameters = std::move(parameters);
  });
  return outcome;
}

// Groups of two and of three, whatever the stage cuts: only the order of the sums differs.
TEST(Mics, MatchesPlainZero) {
  for (const auto& [world_size, shard_size] : {std::pair{4, 2}, {6, 3}, {6, 2}, {3, 1}, {4, 4}}) {
    for (const int stage : {1, 2, 3}) {
      for (const std::int64_t accumulation : {1, 2}) {
        if (24 % (world_size * accumulation) != 0) continue;
        SCOPED_TRACE(::testing::Message() << world_size << " ranks in groups of " << shard_size
                                          << ", stage " << stage << ", " << accumulation);
        TinyRun run{.stage = stage, .accumulation = accumulation};
        const GroupsOutcome plain = TrainInGroups(run, world_size);
        run.zero.mics_shard_size = shard_size;
        const GroupsOutcome mics = TrainInGroups(run, world_size);
        for (const auto& [name, value] : plain.parameters) {
          EXPECT_TRUE(value.allclose(mics.parameters.at(name), 0, 1e-6)) << name;
        }
        for (std::size_t i = 0; i < kMicsSteps; ++i) {
          EXPECT_NEAR(plain.steps[i].grad_norm, mics.steps[i].grad_norm, 1e-5);
        }
        for (const at::Tensor& weight : mics.weights) EXPECT_TRUE(weight.equal(mics.weights[0]));
      }
    }
  }
}

TEST(Mics, AddsGradientsInTheDtypeOfCommunication) {
  TinyRun run{.stage = 3, .precision = Precision::kBf16};
  const GroupsOutcome plain = TrainInGroups(run, 4);
  run.zero.mics_shard_size = 2;
  const GroupsOutcome mics = TrainInGroups(run, 4);
  for (const auto& [name, value] : plain.parameters) {
    EXPECT_TRUE(value.allclose(mics.parameters.at(name), 0x1p-7, 1e-3)) << name;
  }
  for (const at::Tensor& weight : mics.weights) EXPECT_TRUE(weight.equal(mics.weights[0]));
}

TEST(Mics, ARankHoldsTheShareOfItsGroup) {
  const GroupsOutcome two = TrainInGroups({.stage = 3}, 2);
  const GroupsOutcome four = TrainInGroups({.stage = 3, .zero = {.mics_shard_size = 2}}, 4);
  EXPECT_GT(two.state_bytes[0], 0);
  for (const std::int64_t bytes : four.state_bytes) EXPECT_EQ(bytes, two.state_bytes[0]);
}

}  // namespace
}  // namespace ds::tests
