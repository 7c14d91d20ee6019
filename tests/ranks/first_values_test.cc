// First values: the same however ranks and stages cut the model, and each rank draws its own only.

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "runtime/comm/communicator.h"
#include "runtime/engine/parameter_units.h"
#include "runtime/zero/sharded_model.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

TEST(FirstValues, DoNotDependOnStageOrRanks) {
  std::map<std::string, at::Tensor> expected;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int stage : {0, 1, 2, 3}) {
      testing::RunRanks(ranks, [&](comm::Communicator& world) {
        const auto engine = MakeTinyEngine({.stage = stage}, world);
        const auto values = ExportAll(*engine);
        if (world.rank() != 0) return;
        if (expected.empty()) expected = values;
        for (const auto& [name, value] : values) {
          EXPECT_TRUE(value.equal(expected.at(name)))
              << name << " of " << ranks << " ranks at stage " << stage;
        }
      });
    }
  }
  EXPECT_GT(expected.at("table").std().item<double>(), 0.3);
}

TEST(FirstValues, EachElementIsDrawnOnceWhereParametersAreSharded) {
  constexpr int kRanks = 3;
  std::map<std::string, std::vector<int>> drawn;  // by element
  std::mutex mutex;
  testing::RunRanks(kRanks, [&](comm::Communicator& world) {
    const auto model = MakeTinyModel({}, at::kFloat);
    device::MemoryLedger ledger;
    const zero::Context context{.groups = {.all = &world, .gradients = &world, .shards = &world},
                                .ledger = &ledger,
                                .sharding = config::ShardingOfStage(3, kRanks)};
    const auto record = [&](int, const std::vector<zero::OwnRange>& own) {
      const std::lock_guard lock(mutex);
      for (const zero::OwnRange& range : own) {
        std::vector<int>& counts = drawn[range.name];
        const auto end = static_cast<std::size_t>(range.first + range.values.numel());
        if (counts.size() < end) counts.resize(end, 0);
        for (auto i = static_cast<std::size_t>(range.first); i < end; ++i) ++counts[i];
      }
      return StatusOr<zero::FirstValues>(zero::FirstValues::kSameEverywhere);
    };
    EXPECT_TRUE(zero::ShardedModel::Create(context, engine::BuildUnits(*model), record).ok());
  });
  const auto model = MakeTinyModel({}, at::kFloat);
  for (const auto& block : model->blocks()) {
    for (const auto& item : block->named_parameters()) {
      const std::vector<int>& counts = drawn.at(block->FullName(item.key()));
      EXPECT_EQ(counts, std::vector<int>(static_cast<std::size_t>(item.value().numel()), 1))
          << item.key();
    }
  }
}

}  // namespace
}  // namespace ds::tests
