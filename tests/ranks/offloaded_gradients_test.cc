// Gradients that rest in files are measured while they are still in memory, and the room that they
// take is there before the first step.

#include <gtest/gtest.h>

#include <atomic>

#include "runtime/comm/communicator.h"
#include "runtime/device/dtype_policy.h"
#include "runtime/engine/parameter_units.h"
#include "runtime/offload/file_tier.h"
#include "runtime/zero/optimizer/sharded_optimizer.h"
#include "runtime/zero/sharded_model.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"
#include "tests/support/scripted_file_system.h"

namespace ds::tests {
namespace {

using testing::FileCall;
using zero::StorageTier;

// A drive of one rank that counts what is read of it.
class CountedDrive {
 public:
  CountedDrive()
      : tier_(offload::FileTier::Open({.folders = {folder_.path()},
                                       .queue = offload::QueueChoice::kThreads,
                                       .most_idle_bytes = 0,
                                       .system = system_})
                  .value()) {}

  int reads() const { return reads_; }
  offload::FileTier& tier() const { return *tier_; }

 private:
  const testing::TemporaryFolder folder_;
  std::atomic<int> reads_ = 0;
  testing::ScriptedFileSystem system_{[this](const FileCall& call) {
    if (call.kind == FileCall::Kind::kRead) ++reads_;
    return testing::kAskTheSystem;
  }};
  std::unique_ptr<offload::FileTier> tier_;
};

// One rank's part of a model, whose state and gradients rest where `storage_tier` says.
class RestingRank {
 public:
  RestingRank(comm::Communicator& world, const TinyRun& run, StorageTier storage_tier)
      : context_{.groups = {.all = &world, .gradients = &world, .shards = &world},
                 .mesh = topology::Mesh::Create({.shard = world.size()}, world.size()).value(),
                 .ledger = &ledger_,
                 .sharding = config::ShardingOfStage(run.stage, 2),
                 .dtypes = precision::MakeDtypePolicy(TinyConfig(run)),
                 .tiers = {.gradients = storage_tier,
                           .optimizer = storage_tier,
                           .optimizer_files = &drive_.tier(),
                           .smallest_bytes = 4096}},
        model_(MakeTinyModel(run.shape, run.dtype())) {
    const auto fill = [&](int index, const std::vector<zero::OwnRange>& own) {
      for (const zero::OwnRange& range : own) {
        model_->block(index).InitializeRange(range.name, 7, range.first, range.values);
      }
      return StatusOr<zero::FirstValues>(zero::FirstValues::kSameEverywhere);
    };
    sharded_ =
        zero::ShardedModel::Create(context_, engine::BuildUnits(*model_, run.groups), fill).value();
    optimizer_.emplace(*sharded_, TinyConfig(run).optimizer);
  }

  const CountedDrive& drive() const { return drive_; }
  zero::ShardedOptimizer& optimizer() { return *optimizer_; }

  // A micro-batch's, by which the weights stand for them.
  void AddGradients(double salt) {
    ForEachTrained([&](zero::Bucket& bucket) {
      for (int i = 0; i < bucket.parameters().layout().size(); ++i) {
        bucket.gradients().Add(i, bucket.parameters().parameter(i).tensor.detach() * 0.5 + salt);
      }
      bucket.gradients().EndMicroBatch(zero::MicroBatchEnd::kReduce);
    });
  }
  // Somebody else's values, in place of what backward passes have left.
  void DoubleGradients() {
    ForEachTrained([](zero::Bucket& bucket) {
      const auto source = bucket.gradients().SourceOf(bucket.gradients().optimizer_range());
      const at::Tensor values = checkpoint::ReadAll(*source).value();
      EXPECT_TRUE(checkpoint::WriteAll(values * 2, *source).ok());
    });
  }

 private:
  template <typename Visit>
  void ForEachTrained(Visit visit) {
    for (const auto& unit : sharded_->units()) {
      for (const auto& bucket : unit->buckets()) {
        if (bucket->trainable()) visit(*bucket);
      }
    }
  }

  CountedDrive drive_;
  device::MemoryLedger ledger_;
  const zero::Context context_;
  const std::shared_ptr<BlockList> model_;
  std::unique_ptr<zero::ShardedModel> sharded_;
  std::optional<zero::ShardedOptimizer> optimizer_;
};

TinyRun RunOf(int stage) {
  return {.stage = stage,
          .shape = {.vocabulary = 300, .width = 48, .layers = 2},
          .groups = optim::NoDecayOnNormsAndBiases};
}

TEST(OffloadedGradients, AreMeasuredBeforeTheyLeave) {
  for (const int stage : {1, 2}) {
    SCOPED_TRACE(stage);
    testing::RunRanks(2, [&](comm::Communicator& world) {
      RestingRank here(world, RunOf(stage), StorageTier::kHere),
          offload(world, RunOf(stage), StorageTier::kFile);
      for (int step = 1; step <= 2; ++step) {
        for (RestingRank* rank : {&here, &offload}) {
          rank->AddGradients(step);
          rank->AddGradients(world.rank() + 0.25);
          rank->optimizer().ReduceGradients(step);
        }
        const int reads = offload.drive().reads();
        EXPECT_EQ(offload.optimizer().MeasureShard().Read(),
                  here.optimizer().MeasureShard().Read());
        EXPECT_EQ(offload.drive().reads(), reads) << "nothing is read for the norm";
        for (RestingRank* rank : {&here, &offload}) {
          rank->optimizer().Step({.lr = 0.01, .step = step});
          rank->optimizer().ClearGradients();
        }
      }
    });
  }
}

TEST(OffloadedGradients, AreMeasuredAgainAfterExternalWrites) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    RestingRank here(world, RunOf(2), StorageTier::kHere),
        offload(world, RunOf(2), StorageTier::kFile);
    for (RestingRank* rank : {&here, &offload}) {
      rank->AddGradients(1);
      rank->optimizer().ReduceGradients(1);
    }
    const double before = offload.optimizer().MeasureShard().Read();
    here.DoubleGradients();
    offload.DoubleGradients();
    EXPECT_EQ(offload.optimizer().MeasureShard().Read(), here.optimizer().MeasureShard().Read());
    EXPECT_NEAR(offload.optimizer().MeasureShard().Read(), 4 * before, 1e-6 * before);
  });
}

TEST(OffloadedGradients, ReserveTheirSpaceBeforeTheFirstStep) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    RestingRank rank(world, RunOf(2), StorageTier::kFile);
    const offload::ScratchFile& file = rank.drive().tier().files()[0];
    const std::int64_t size = file.size();
    for (int step = 1; step <= 2; ++step) {
      rank.AddGradients(step);
      rank.optimizer().ReduceGradients(step);
      rank.optimizer().Step({.lr = 0.01, .step = step});
      rank.optimizer().ClearGradients();
    }
    EXPECT_EQ(file.size(), size);
  });
}

}  // namespace
}  // namespace ds::tests
