// Plans that gather ahead train with the bits of the plan that does not.

#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "runtime/engine/build_units.h"
#include "runtime/zero/sharded_model.h"
#include "tests/ranks/observed_backend.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

struct PassResult {
  std::vector<at::Tensor> gradients;  // this rank's shards of two micro-batches' sum
  int gathers_in_forward = 0;         // of the second micro-batch
  int gathers = 0;
};

at::Tensor RunForward(BlockList& model, zero::ShardedModel& sharded, Bundle bundle) {
  sharded.BeginForward();
  for (int i = 0; i < model.size(); ++i) {
    sharded.Enter(i);
    bundle = model.block(i).forward(std::move(bundle));
    std::vector<at::Tensor> left = sharded.LeaveForward(i, {bundle.hidden, bundle.loss});
    bundle.hidden = left[0];
    bundle.loss = left[1];
  }
  sharded.EndForward();
  return bundle.loss;
}

PassResult RunPasses(comm::Communicator& host, int stage, const zero::ResidencyBudgets& budgets) {
  PassResult result;
  comm::Communicator world(c10::make_intrusive<ObservedBackend>(
      host.backend(), [&](c10d::OpType op, const at::Tensor& tensor) {
        const bool gathers = op == c10d::OpType::_ALLGATHER_BASE;
        if (gathers && at::isFloatingType(tensor.scalar_type())) ++result.gathers;
      }));
  const TinyRun run{.stage = stage, .accumulation = 2};
  device::MemoryLedger ledger;
  const zero::Context context{.groups = {.all = &world, .gradients = &world, .shards = &world},
                              .ledger = &ledger,
                              .sharding = config::ShardingOfStage(stage, world.size()),
                              .dtypes = precision::MakeDtypePolicy(TinyConfig(run)),
                              .budgets = budgets};
  const auto model = MakeTinyModel(run.shape, run.dtype());
  const auto fill = [&](int index, const std::vector<zero::OwnRange>& own) {
    for (const zero::OwnRange& range : own) {
      model->block(index).InitializeRange(range.name, 7, range.first, range.values);
    }
    return StatusOr<zero::FirstValues>(zero::FirstValues::kSameEverywhere);
  };
  const auto sharded =
      zero::ShardedModel::Create(context, engine::BuildUnits(*model), fill).value();
  for (int i = 0; i < 2; ++i) {
    result.gathers = 0;
    const at::Tensor loss = RunForward(*model, *sharded, TinyBatch(run, world, i));
    result.gathers_in_forward = result.gathers;
    loss.backward();
    sharded->EndBackward();
  }
  for (const auto& unit : sharded->units()) {
    for (const auto& group : unit->groups()) {
      if (!group->trainable()) continue;
      group->gradients->Reduce();
      result.gradients.push_back(group->gradients->shard().tensor().clone());
    }
  }
  return result;
}

TEST(Residency, GathersAheadWithTheSameBits) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const PassResult plain = RunPasses(world, 3, {});
    constexpr std::int64_t kAll = 1 << 20;
    const std::vector<zero::ResidencyBudgets> budgets = {
        {.prefetch_bytes = 600},
        {.prefetch_bytes = kAll},
        {.prefetch_bytes = kAll, .max_live_bytes = 3000}};
    for (const zero::ResidencyBudgets& each : budgets) {
      const PassResult ahead = RunPasses(world, 3, each);
      ASSERT_EQ(ahead.gradients.size(), plain.gradients.size());
      for (std::size_t i = 0; i < plain.gradients.size(); ++i) {
        EXPECT_TRUE(ahead.gradients[i].equal(plain.gradients[i])) << i;
      }
      EXPECT_LE(ahead.gathers, plain.gathers);
    }
    // Two groups in each layer, one in the embedding, which the head reads again, and in the head.
    // The backward pass finds the last unit present.
    EXPECT_EQ(plain.gathers_in_forward, 1 + 3 * 2 + 2);
    EXPECT_EQ(plain.gathers - plain.gathers_in_forward, 3 * 2 + 1);
    const PassResult all = RunPasses(world, 3, budgets[1]);
    EXPECT_EQ(all.gathers_in_forward, 1 + 3 * 2 + 1) << "the head finds the embedding kept";
    EXPECT_LT(all.gathers, plain.gathers);
  });
}

TEST(Residency, GathersNothingThatIsNotSharded) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    EXPECT_EQ(RunPasses(world, 2, {.prefetch_bytes = 1 << 20, .max_live_bytes = 1}).gathers, 0);
  });
}

}  // namespace
}  // namespace ds::tests
