// What rests in files trains with the bits of what does not, at every stage, and leaves nothing
// behind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "runtime/base/isa_probe.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/engine/deepspeed_api.h"
#include "runtime/engine/tensor_access.h"
#include "runtime/optim/muon.h"
#include "runtime/zero/state_kind.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using config::OffloadDevice;
using device::MemoryTier;
using device::MemoryUse;
using Parameters = std::map<std::string, at::Tensor>;

constexpr int kSteps = 3;
constexpr std::int64_t kPage = 4096;

// What shards of less than a page have together, at most.
constexpr std::int64_t kSmall = 5 * kPage;

// Shards of several sub-groups each, and layers of less than one.
constexpr TinyShape kOffloadedShape{.vocabulary = 300, .width = 48, .layers = 2};

struct Offload {
  bool optimizer = false;
  bool parameters = false;
  bool pipelined = false;
  std::int64_t max_in_cpu = 0;
  std::int64_t block_size = kPage;  // what is smaller stays in memory
  int folders = 1;
  double ratio = 1.0;
};

struct OffloadRun {
  TinyRun tiny;
  Offload offload = {};
};

class Folders {
 public:
  std::vector<std::string> List(int count) const {
    std::vector<std::string> paths;
    for (int i = 0; i < count; ++i) paths.push_back(folders_.at(i).path().string());
    return paths;
  }
  bool are_empty() const {
    return std::all_of(folders_.begin(), folders_.end(),
                       [](const auto& each) { return std::filesystem::is_empty(each.path()); });
  }

 private:
  std::array<testing::TemporaryFolder, 2> folders_;
};

std::unique_ptr<Engine> MakeEngine(const OffloadRun& run, const Folders& folders,
                                   comm::Communicator& world, device::MemoryLedger* ledger) {
  [[maybe_unused]] static const IsaReport isa = ProbeAndCapIsa();
  config::DsConfig config = TinyConfig(run.tiny);
  config.aio.block_size = run.offload.block_size;
  config::ZeroConfig& zero = config.zero_optimization;
  zero.sub_group_size = 2048;
  if (run.offload.optimizer) {
    zero.offload_optimizer.device = OffloadDevice::kNvme;
    zero.offload_optimizer.nvme_path = folders.List(run.offload.folders);
    zero.offload_optimizer.pipeline_read = run.offload.pipelined;
    zero.offload_optimizer.pipeline_write = run.offload.pipelined;
    zero.offload_optimizer.ratio = run.offload.ratio;
  }
  if (run.offload.parameters) {
    zero.offload_param.device = OffloadDevice::kNvme;
    zero.offload_param.nvme_path = folders.List(run.offload.folders);
    zero.offload_param.max_in_cpu = run.offload.max_in_cpu;
  }
  return Engine::create(MakeTinyModel(run.tiny.shape, run.tiny.dtype()), config,
                        {.world = &world, .ledger = ledger, .parameter_group = run.tiny.groups})
      .value();
}

struct OffloadedRun {
  std::vector<StepResult> steps;
  Parameters parameters;
};

OffloadedRun Train(const OffloadRun& run, int world_size) {
  OffloadedRun outcome;
  const Folders folders;
  testing::RunRanks(world_size, [&](comm::Communicator& world) {
    const auto engine = MakeEngine(run, folders, world, nullptr);
    auto steps = TrainTiny(*engine, run.tiny, kSteps);
    auto parameters = ExportAll(*engine);
    if (world.rank() == 0) outcome = {std::move(steps), std::move(parameters)};
  });
  EXPECT_TRUE(folders.are_empty());
  return outcome;
}

void ExpectSameBits(const Parameters& a, const Parameters& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, value] : a) EXPECT_TRUE(value.equal(b.at(name))) << name;
}

void ExpectSameBits(const OffloadedRun& a, const OffloadedRun& b) {
  ExpectSameBits(a.parameters, b.parameters);
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
    EXPECT_EQ(a.steps[i].grad_norm, b.steps[i].grad_norm);
  }
}

std::vector<Offload> ListOffloads(int stage) {
  std::vector<Offload> all = {{.optimizer = true},
                              {.optimizer = true, .pipelined = true},
                              {.optimizer = true, .pipelined = true, .ratio = 0.6}};
  if (stage < 3) return all;
  all.push_back({.parameters = true});
  all.push_back({.optimizer = true, .parameters = true, .pipelined = true, .folders = 2});
  all.push_back({.optimizer = true, .parameters = true, .max_in_cpu = 10'000});
  return all;
}

class Offloaded : public ::testing::TestWithParam<int> {};

TEST_P(Offloaded, MatchesStateInMemoryBitForBit) {
  for (const int stage : {1, 2, 3}) {
    for (const Precision precision :
         {Precision::kFp32, Precision::kBf16, Precision::kBf16State, Precision::kBf16Throughout}) {
      for (const std::int64_t accumulation : {1, 2}) {
        OffloadRun run{.tiny = {.stage = stage,
                                .accumulation = accumulation,
                                .precision = precision,
                                .shape = kOffloadedShape}};
        const OffloadedRun expected = Train(run, GetParam());
        for (const Offload& offload : ListOffloads(stage)) {
          SCOPED_TRACE(::testing::Message()
                       << "stage " << stage << ", precision " << static_cast<int>(precision)
                       << ", accumulation " << accumulation << ", optimizer " << offload.optimizer
                       << ", parameters " << offload.parameters);
          run.offload = offload;
          ExpectSameBits(Train(run, GetParam()), expected);
        }
      }
    }
  }
}

TEST_P(Offloaded, TrainsLikewiseWithEveryOptimizerOfElements) {
  const std::vector<config::OptimizerAlgorithm> algorithms = {
      config::SgdConfig{.momentum = 0.9}, config::AdagradConfig{}, config::LionConfig{}};
  for (const config::OptimizerAlgorithm& algorithm : algorithms) {
    OffloadRun run{.tiny = {.stage = 2,
                            .optimizer = algorithm,
                            .shape = kOffloadedShape,
                            .groups = optim::NoDecayOnNormsAndBiases}};
    const OffloadedRun expected = Train(run, GetParam());
    run.offload = {.optimizer = true, .pipelined = true};
    SCOPED_TRACE(algorithm.index());
    ExpectSameBits(Train(run, GetParam()), expected);
  }
}

// Muon has both: ranges of matrices that it takes whole, and AdamW's, which are cut.
TEST_P(Offloaded, MatchesWithOptimizersOfFullParameters) {
  const std::vector<config::OptimizerAlgorithm> algorithms = {config::LambConfig{},
                                                              config::MuonConfig{}};
  for (const config::OptimizerAlgorithm& algorithm : algorithms) {
    const bool muon = std::holds_alternative<config::MuonConfig>(algorithm);
    for (const int stage : {1, 3}) {
      for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
        OffloadRun run{
            .tiny = {.stage = stage,
                     .precision = precision,
                     .optimizer = algorithm,
                     .shape = kOffloadedShape,
                     .groups = muon ? optim::WithMuonMatrices(optim::OneGroup)
                                    : optim::ParameterGrouper(optim::NoDecayOnNormsAndBiases)}};
        const OffloadedRun expected = Train(run, GetParam());
        for (const Offload& offload : ListOffloads(stage)) {
          SCOPED_TRACE(::testing::Message()
                       << (muon ? "Muon" : "Lamb") << ", stage " << stage << ", precision "
                       << static_cast<int>(precision) << ", pipelined " << offload.pipelined);
          run.offload = offload;
          ExpectSameBits(Train(run, GetParam()), expected);
        }
      }
    }
  }
}

TEST(Offload, TrainsLikewiseInGroupsThatShardAmongThemselves) {
  for (const int stage : {1, 3}) {
    OffloadRun run{.tiny = {.stage = stage, .accumulation = 2, .shape = kOffloadedShape}};
    run.tiny.zero.mics_shard_size = 2;
    const OffloadedRun expected = Train(run, 4);
    run.offload = {.optimizer = true, .pipelined = true};
    ExpectSameBits(Train(run, 4), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Offloaded, ::testing::Values(1, 2, 3));

TEST(Offload, HoldsOnlySmallTensorsInMemory) {
  const Folders folders;
  const OffloadRun run{
      .tiny = {.stage = 3, .precision = Precision::kBf16, .shape = kOffloadedShape},
      .offload = {.optimizer = true, .parameters = true}};
  testing::RunRanks(2, [&](comm::Communicator& world) {
    device::MemoryLedger ledger;
    const auto engine = MakeEngine(run, folders, world, &ledger);
    TrainTiny(*engine, run.tiny, 1);
    for (const MemoryUse use :
         {MemoryUse::kParameters, MemoryUse::kOptimizerState, MemoryUse::kMasterWeights}) {
      EXPECT_GT(ledger.Bytes(use, MemoryTier::kFile), 0) << device::MemoryUseName(use);
      EXPECT_LT(ledger.Bytes(use, MemoryTier::kHost), kSmall) << device::MemoryUseName(use);
    }
    EXPECT_GT(ledger.Peak(MemoryUse::kGradients, MemoryTier::kFile), 0);
    EXPECT_GT(ledger.Peak(MemoryUse::kOther, MemoryTier::kMapped), 0) << "buffers are booked";
  });
}

TEST(Offload, KeepsThePartOfTheStateThatRatioAllows) {
  const Folders folders;
  const std::int64_t layer = kOffloadedShape.width * kOffloadedShape.width + kOffloadedShape.width;
  const std::int64_t table = kOffloadedShape.vocabulary * kOffloadedShape.width;
  for (const double ratio : {1.0, 0.85, 0.6, 0.0}) {
    SCOPED_TRACE(ratio);
    const OffloadRun run{.tiny = {.stage = 2, .shape = kOffloadedShape},
                         .offload = {.optimizer = true, .ratio = ratio}};
    testing::RunRanks(1, [&](comm::Communicator& world) {
      device::MemoryLedger ledger;
      const auto engine = MakeEngine(run, folders, world, &ledger);
      TrainTiny(*engine, run.tiny, 1);
      const auto bytes = [&](MemoryTier tier) {
        return ledger.Bytes(MemoryUse::kOptimizerState, tier);
      };
      // Two values of 4 bytes each; a layer is an eighth of all, the table three quarters.
      const auto all = static_cast<double>(bytes(MemoryTier::kFile) + bytes(MemoryTier::kHost));
      EXPECT_GE(static_cast<double>(bytes(MemoryTier::kFile)), ratio * all - kSmall);
      const std::int64_t kept = ratio == 1.0    ? 0
                                : ratio == 0.85 ? layer
                                : ratio == 0.6  ? 2 * layer
                                                : table;
      EXPECT_GE(bytes(MemoryTier::kHost), 8 * kept);
      if (ratio == 0.0) {
        EXPECT_EQ(bytes(MemoryTier::kFile), 0);
        EXPECT_EQ(ledger.Peak(MemoryUse::kGradients, MemoryTier::kFile), 0);
      }
    });
  }
}

TEST(Offload, KeepsNothingOfGradientsThatWereRead) {
  const Folders folders;
  const OffloadRun run{.tiny = {.stage = 3, .shape = kOffloadedShape},
                       .offload = {.optimizer = true, .pipelined = true}};
  testing::RunRanks(1, [&](comm::Communicator& world) {
    device::MemoryLedger ledger;
    const auto engine = MakeEngine(run, folders, world, &ledger);
    RunMicroBatch(*engine, run.tiny, 0);
    TensorAccess access(*engine);
    for (const char* name : {"table", "layer.0.w", "layer.1.w"}) {
      const at::Tensor gradient = access.GetFullGrad(name).value();
      EXPECT_TRUE(access.SetFullGrad(name, gradient * 2).ok());
      EXPECT_TRUE(access.GetFullGrad(name).value().equal(gradient * 2)) << name;
    }
    // Idle buffers, and those that wait to be written: four sub-groups each. The table's gradient
    // alone has seven.
    EXPECT_GT(ledger.Bytes(MemoryUse::kOther, MemoryTier::kMapped), 0);
    EXPECT_LE(ledger.Bytes(MemoryUse::kOther, MemoryTier::kMapped), 2 * 4 * 2048 * 4);
  });
}

// Two steps, a checkpoint, a third one.
Parameters TrainAndSave(const std::filesystem::path& root, const OffloadRun& run) {
  Parameters result;
  const Folders folders;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const auto engine = MakeEngine(run, folders, world, nullptr);
    TrainTiny(*engine, run.tiny, 2);
    checkpoint::Stateful* const parts[] = {&engine->state()};
    const auto saved = checkpoint::SaveCheckpoint({.root = root, .step = 2}, parts, world);
    EXPECT_TRUE(saved.ok()) << saved.status().message();
    TrainTiny(*engine, run.tiny, 1);
    auto all = ExportAll(*engine);
    if (world.rank() == 0) result = std::move(all);
  });
  return result;
}

Parameters LoadAndTrain(const std::filesystem::path& root, const OffloadRun& run, int world_size) {
  Parameters result;
  const Folders folders;
  testing::RunRanks(world_size, [&](comm::Communicator& world) {
    device::MemoryLedger ledger;
    const auto engine = MakeEngine(run, folders, world, &ledger);
    checkpoint::Stateful* const parts[] = {&engine->state()};
    const Status loaded = checkpoint::LoadCheckpoint(root / "step-2", parts, world);
    EXPECT_TRUE(loaded.ok()) << loaded.message();
    if (run.offload.optimizer) {
      EXPECT_LT(ledger.Peak(MemoryUse::kOptimizerState, MemoryTier::kHost), kSmall);
    }
    TrainTiny(*engine, run.tiny, 1);
    auto all = ExportAll(*engine);
    if (world.rank() == 0) result = std::move(all);
  });
  return result;
}

TEST(Offload, IsSavedFromAnyTierAndResumesInAnyOther) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const OffloadRun memory{.tiny = {.stage = 3, .precision = precision, .shape = kOffloadedShape}};
    OffloadRun files = memory;
    files.offload = {.optimizer = true, .parameters = true, .pipelined = true};
    OffloadRun optimizer_in_files = memory;
    optimizer_in_files.tiny.stage = 1;
    optimizer_in_files.offload = {.optimizer = true};
    for (const OffloadRun& saved : {memory, files, optimizer_in_files}) {
      const testing::TemporaryFolder folder;
      const Parameters expected = TrainAndSave(folder.path(), saved);
      for (const OffloadRun& loaded : {memory, files, optimizer_in_files}) {
        ExpectSameBits(LoadAndTrain(folder.path(), loaded, 2), expected);
      }
    }
  }
}

TEST(Offload, ResumesInAWorldOfAnotherSizeLikeMemory) {
  const testing::TemporaryFolder folder;
  const OffloadRun memory{.tiny = {.stage = 3, .shape = kOffloadedShape}};
  OffloadRun files = memory;
  files.offload = {.optimizer = true, .parameters = true};
  TrainAndSave(folder.path(), files);
  for (const int world_size : {1, 3}) {
    ExpectSameBits(LoadAndTrain(folder.path(), files, world_size),
                   LoadAndTrain(folder.path(), memory, world_size));
  }
}

// Each kind alone, and all; at stage 0 nothing rests in files.
TEST(Offload, OffloadsAndReloadsStates) {
  using zero::StateKind;
  const std::vector<StateKind> kinds[] = {
      {StateKind::kOptimStates}, {StateKind::kHpParams}, {StateKind::kLpParams}, {}};
  for (const int stage : {0, 1, 2, 3}) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      SCOPED_TRACE(::testing::Message()
                   << "stage " << stage << ", precision " << static_cast<int>(precision));
      OffloadRun run{.tiny = {.stage = stage, .precision = precision, .shape = kOffloadedShape}};
      const OffloadedRun expected = Train(run, 2);
      run.offload = {.optimizer = stage > 0, .parameters = stage == 3};
      const Folders folders;
      testing::RunRanks(2, [&](comm::Communicator& world) {
        const auto engine = MakeEngine(run, folders, world, nullptr);
        engine::DeepSpeedApi api(*engine);
        for (int step = 0; step < kSteps; ++step) {
          TrainTiny(*engine, run.tiny, 1);
          for (const std::vector<StateKind>& kind : kinds) {
            EXPECT_TRUE(api.offload_states(kind).ok());
            EXPECT_TRUE(api.reload_states().ok());
          }
        }
        const auto parameters = ExportAll(*engine);
        if (world.rank() == 0) ExpectSameBits(parameters, expected.parameters);
      });
    }
  }
}

TEST(Offload, ReportsAnUnusableFolderOnEveryRank) {
  const testing::TemporaryFolder folder;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    config::DsConfig config = TinyConfig({.stage = 1});
    config.zero_optimization.offload_optimizer.device = OffloadDevice::kNvme;
    // Only rank 1's is not there.
    config.zero_optimization.offload_optimizer.nvme_path = {
        world.rank() == 0 ? folder.path().string() : "/nonexistent/drive"};
    const auto engine = Engine::create(MakeTinyModel({}, at::kFloat), config, {.world = &world});
    ASSERT_FALSE(engine.ok());
    EXPECT_THAT(engine.status().message(),
                ::testing::AllOf(::testing::HasSubstr("rank 1"),
                                 ::testing::HasSubstr("/nonexistent/drive on host ")));
  });
}

}  // namespace
}  // namespace ds::tests
