// What rests on the host or in files is there between steps whatever the optimizer, and comes to
// the device a training range, or a part of one, at a time. The device here is the CPU, too: what
// is there and what is away are told apart by what taking it away would allocate.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "runtime/comm/communicator.h"
#include "runtime/device/counting_allocator.h"
#include "runtime/device/dtype_policy.h"
#include "runtime/engine/parameter_units.h"
#include "runtime/offload/file_tier.h"
#include "runtime/optim/muon.h"
#include "runtime/zero/optimizer/sharded_optimizer.h"
#include "runtime/zero/sharded_model.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/deferred_copies.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using zero::StateKind;
using zero::StorageTier;

// One rank's, whose state is a shard all the same, as it is where it is offloaded.
zero::Context MakeContext(comm::Communicator& world, const TinyRun& run, const zero::Tiers& tiers,
                          std::shared_ptr<device::CopyStreams> copies,
                          device::MemoryLedger* ledger) {
  return {.groups = {.all = &world, .gradients = &world, .shards = &world},
          .mesh = topology::Mesh::Create({.shard = world.size()}, world.size()).value(),
          .ledger = ledger,
          .sharding = config::ShardingOfStage(run.stage, 2),
          .dtypes = precision::MakeDtypePolicy(TinyConfig(run)),
          .tiers = tiers,
          .copies = std::move(copies)};
}

struct TrainedOnHost {
  std::vector<at::Tensor> weights;     // this rank's
  std::vector<at::Tensor> parameters;  // as the model has them
  std::int64_t moved_after_step = 0;   // bytes that were still here
  std::vector<std::string> copies;     // that the second update has begun, and waits for them
};

// Adds gradients that the weights stand for, and ends with their mean.
void AddGradients(const zero::ShardedModel& sharded, int step, std::vector<at::Tensor>* read) {
  for (const auto& unit : sharded.units()) {
    for (const auto& bucket : unit->buckets()) {
      if (!bucket->trainable()) continue;
      bucket->parameters().Gather();
      bucket->parameters().Await();
      for (int i = 0; i < bucket->parameters().layout().size(); ++i) {
        const at::Tensor& parameter = bucket->parameters().parameter(i).tensor;
        read->push_back(parameter.detach().clone());
        bucket->gradients().Add(i, parameter.detach() * 0.5 + step);
      }
      bucket->parameters().Release();
      bucket->gradients().EndMicroBatch(zero::MicroBatchEnd::kReduce);
    }
  }
}

// Two updates; with tiers.leaving_bytes by late copies. Before the second one, if it is to be, one
// that the device decides against.
TrainedOnHost TrainResting(comm::Communicator& world, const TinyRun& run, const zero::Tiers& tiers,
                           bool has_vain_update = false) {
  static device::CountingAllocator& allocator = device::CountingAllocator::Install();
  device::MemoryLedger ledger;
  std::shared_ptr<testing::DeferredCopies> copies;
  if (tiers.leaving_bytes > 0) {
    copies = std::make_shared<testing::DeferredCopies>(tiers.leaving_bytes);
  }
  const zero::Context context = MakeContext(world, run, tiers, copies, &ledger);
  const auto model = MakeTinyModel(run.shape, run.dtype());
  const auto fill = [&](int index, const std::vector<zero::OwnRange>& own) {
    for (const zero::OwnRange& range : own) {
      model->block(index).InitializeRange(range.name, 7, range.first, range.values);
    }
    return StatusOr<zero::FirstValues>(zero::FirstValues::kSameEverywhere);
  };
  const auto sharded =
      zero::ShardedModel::Create(context, engine::BuildUnits(*model, run.groups), fill).value();
  zero::ShardedOptimizer optimizer(*sharded, TinyConfig(run).optimizer);
  TrainedOnHost trained;
  for (const int step : has_vain_update ? std::vector{1, 0, 2} : std::vector{1, 2}) {
    trained.parameters.clear();
    AddGradients(*sharded, step, &trained.parameters);
    optimizer.ReduceGradients(step);
    if (copies) copies->log.clear();
    optim::Update update{.lr = 0.01, .step = std::max(step, 1)};
    if (step == 0) update.decision = at::tensor({1.0F, 0.0F});  // optim::UpdateDecision
    optimizer.Step(update);
    if (copies) trained.copies = copies->log;
    optimizer.ClearGradients();
  }
  std::vector<checkpoint::TensorShard> shards;
  optimizer.AddShards(&shards);
  for (const checkpoint::TensorShard& shard : shards) {
    trained.weights.push_back(checkpoint::ReadAll(*shard.source).value());
  }
  const std::int64_t before = allocator.BytesOut();
  allocator.ResetPeak();
  optimizer.MoveToHost(StateKind::kOptimStates);
  optimizer.MoveToHost(StateKind::kHpParams);
  trained.moved_after_step = allocator.PeakBytesOut() - before;
  if (copies) {
    EXPECT_EQ(copies->leaving_bytes(), 0) << "what has been taken away is still here";
  }
  return trained;
}

void ExpectEqual(const std::vector<at::Tensor>& expected, const std::vector<at::Tensor>& found) {
  ASSERT_EQ(expected.size(), found.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(expected[i].equal(found[i])) << i;
  }
}

TEST(HostTier, HoldsStateBetweenStepsForEveryOptimizer) {
  const std::vector<config::OptimizerAlgorithm> algorithms = {
      config::AdamConfig{}, config::LambConfig{}, config::MuonConfig{}};
  for (const config::OptimizerAlgorithm& algorithm : algorithms) {
    SCOPED_TRACE(algorithm.index());
    const TinyRun run{.stage = 2,
                      .precision = Precision::kBf16,
                      .optimizer = algorithm,
                      .shape = {.vocabulary = 300, .width = 48, .layers = 2},
                      .groups = optim::WithMuonMatrices(optim::NoDecayOnNormsAndBiases)};
    testing::RunRanks(1, [&](comm::Communicator& world) {
      const TrainedOnHost here = TrainResting(world, run, {.optimizer = StorageTier::kHere});
      const TrainedOnHost host = TrainResting(world, run, {.optimizer = StorageTier::kHost});
      EXPECT_GT(here.moved_after_step, 0) << "what is here is moved by that";
      EXPECT_EQ(host.moved_after_step, 0) << "all of it is away";
      ExpectEqual(here.weights, host.weights);
    });
  }
}

TinyRun LargeRun(int stage, Precision precision) {
  return {.stage = stage,
          .precision = precision,
          .shape = {.vocabulary = 300, .width = 48, .layers = 2}};
}

// At each stage and precision: with what rests as `choose_tiers` says weights have the bits that
// they have here.
template <typename ChooseTiers, typename Look>
void ExpectSameBits(ChooseTiers choose_tiers, Look look_at) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE(::testing::Message()
                   << "stage " << stage << ", precision " << static_cast<int>(precision));
      const TinyRun run = LargeRun(stage, precision);
      testing::RunRanks(1, [&](comm::Communicator& world) {
        const TrainedOnHost here = TrainResting(world, run, {});
        const TrainedOnHost offload = TrainResting(world, run, choose_tiers(stage));
        look_at(offload);
        ExpectEqual(here.weights, offload.weights);
      });
    }
  }
}

// The copies come as late as they may: nothing is read, or let go, that is not waited for.
TEST(HostTier, HasTheSameBitsWithOverlappedCopies) {
  const auto choose_tiers = [](int stage) {
    return zero::Tiers{.parameters = stage == 3 ? StorageTier::kHost : StorageTier::kHere,
                       .gradients = stage == 2 ? StorageTier::kHost : StorageTier::kHere,
                       .optimizer = StorageTier::kHost,
                       .leaving_bytes = 32 << 10,
                       .most_elements = 2048,
                       .reads_ahead = true};
  };
  ExpectSameBits(choose_tiers, [](const TrainedOnHost& offload) {
    EXPECT_EQ(offload.moved_after_step, 0) << "all of it is away";
  });
}

// What an update would have written is not let go for memory that nobody has written.
TEST(HostTier, KeepsStateThatTheDeviceSkips) {
  const bool was_deterministic = at::globalContext().deterministicAlgorithms();
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);  // empty() gives NaN
  for (const int stage : {1, 3}) {
    testing::RunRanks(1, [&](comm::Communicator& world) {
      const TinyRun run = LargeRun(stage, Precision::kBf16);
      const zero::Tiers tiers{.parameters = stage == 3 ? StorageTier::kHost : StorageTier::kHere,
                              .optimizer = StorageTier::kHost,
                              .most_elements = 2048};
      const TrainedOnHost expected = TrainResting(world, run, tiers);
      const TrainedOnHost trained = TrainResting(world, run, tiers, /*has_vain_update=*/true);
      SCOPED_TRACE(stage);
      ExpectEqual(expected.parameters, trained.parameters);
      ExpectEqual(expected.weights, trained.weights);
    });
  }
  at::globalContext().setDeterministicAlgorithms(was_deterministic, /*warn_only=*/true);
}

TEST(HostTier, PrefetchesTheNextSubGroupAndNeverBlocksTheHost) {
  testing::RunRanks(1, [&](comm::Communicator& world) {
    const zero::Tiers tiers{.optimizer = StorageTier::kHost,
                            .leaving_bytes = 1 << 30,
                            .most_elements = 2048,
                            .reads_ahead = true};
    const TrainedOnHost trained = TrainResting(world, LargeRun(1, Precision::kBf16), tiers);
    const std::vector<std::string>& copies = trained.copies;
    EXPECT_THAT(copies, ::testing::Not(::testing::Contains("host waits")));
    const auto update = std::find(copies.begin(), copies.end(), "take 8192");
    EXPECT_EQ(std::count(copies.begin(), update, "bring 8192"), 6)
        << "masters and two moments of two turns";
    EXPECT_EQ(std::count(copies.begin(), update, "wait"), 3) << "for those of the first one";
  });
}

// As for a rank on a GPU: everything that rests in files is copied for its lease, and back.
TEST(FileTierOfADevice, HoldsTheModelStateForTheSameBits) {
  const testing::TemporaryFolder folder;
  const auto files = offload::FileTier::Open({.folders = {folder.path()}}).value();
  zero::Tiers tiers{.parameter_files = files.get(),
                    .optimizer_files = files.get(),
                    .copies_from_files = true,
                    .waiting_bytes = 1 << 20,
                    .most_elements = 2048,
                    .reads_ahead = true,
                    .writes_behind = true};
  const auto choose_tiers = [&](int stage) {
    tiers.parameters = stage == 3 ? StorageTier::kFile : StorageTier::kHere;
    tiers.gradients = tiers.optimizer = StorageTier::kFile;
    return tiers;
  };
  ExpectSameBits(choose_tiers, [](const TrainedOnHost&) {});
}

}  // namespace
}  // namespace ds::tests
