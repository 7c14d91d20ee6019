// ZenFlow on ranks: what it computes does not depend on how the state is cut, a checkpoint at any
// moment between its updates goes on with the same bits on any number of ranks, and what it cannot
// be combined with is refused. State in 8 bits, too, is saved and cut as it is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/engine/deepspeed_api.h"
#include "runtime/engine/gathered_parameters.h"
#include "runtime/engine/tensor_access.h"
#include "runtime/plan/mesh/degrees.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using config::OffloadDevice;
using ::testing::HasSubstr;

struct FlowRun {
  TinyRun tiny;
  std::optional<config::ZenFlowConfig> zenflow = {};
  bool eight_bits = false;
};

// Steps 2 and 5 select behind a warm-up of one, the rest is updated in steps 1, 3, 4, 5, 7, 8.
FlowRun Flow(int stage, Precision precision, bool overlap = false) {
  return {
      .tiny = {.stage = stage, .precision = precision, .groups = optim::NoDecayOnNormsAndBiases},
      .zenflow = config::ZenFlowConfig{.topk_ratio = 0.4,
                                       .select_interval = 4,
                                       .update_interval = 2,
                                       .full_warm_up_rounds = 1,
                                       .overlap_step = overlap}};
}

FlowRun EightBits(int stage, Precision precision) {
  return {
      .tiny = {.stage = stage, .precision = precision, .shape = {.vocabulary = 70, .width = 24}},
      .eight_bits = true};
}

StatusOr<std::unique_ptr<Engine>> CreateFlowEngine(const FlowRun& run, comm::Communicator& world,
                                                   std::optional<topology::Degrees> degrees = {},
                                                   device::MemoryLedger* ledger = nullptr) {
  config::DsConfig config = TinyConfig(run.tiny);
  config.zero_optimization.zenflow = run.zenflow;
  if (run.zenflow) config.zero_optimization.offload_optimizer.device = OffloadDevice::kCpu;
  config.optimizer.blockwise_states = run.eight_bits;
  if (degrees) config.parallel.pipeline = degrees->pipeline;
  return Engine::create(
      MakeTinyModel(run.tiny.shape, run.tiny.dtype()), config,
      {.world = &world, .degrees = degrees, .ledger = ledger, .parameter_group = run.tiny.groups});
}

struct FlowOutcome {
  std::vector<StepResult> steps;
  std::map<std::string, at::Tensor> parameters;
};

// Trains up to `steps`, from the checkpoint if there is a folder with one, saving behind the steps
// named.
FlowOutcome TrainFlow(const FlowRun& run, int ranks, int steps,
                      const std::filesystem::path& root = {}, std::vector<int> saves = {},
                      int from = 0) {
  FlowOutcome outcome;
  testing::RunRanks(ranks, [&](comm::Communicator& world) {
    const auto engine = CreateFlowEngine(run, world).value();
    checkpoint::Stateful* const parts[] = {&engine->state()};
    if (from > 0) {
      const Status loaded =
          checkpoint::LoadCheckpoint(root / ("step-" + std::to_string(from)), parts, world);
      ASSERT_TRUE(loaded.ok()) << loaded.message();
    }
    std::vector<StepResult> results;
    for (int step = from + 1; step <= steps; ++step) {
      results.push_back(TrainTiny(*engine, run.tiny, 1)[0]);
      if (std::find(saves.begin(), saves.end(), step) == saves.end()) continue;
      const auto saved = checkpoint::SaveCheckpoint({.root = root, .step = step}, parts, world);
      EXPECT_TRUE(saved.ok()) << saved.status().message();
    }
    auto parameters = ExportAll(*engine);
    if (world.rank() == 0) outcome = {std::move(results), std::move(parameters)};
  });
  return outcome;
}

void ExpectSameFlow(const FlowOutcome& a, const FlowOutcome& b) {
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (const auto& [name, value] : a.parameters) {
    EXPECT_TRUE(value.equal(b.parameters.at(name))) << name;
  }
  for (std::size_t i = 1; i <= std::min(a.steps.size(), b.steps.size()); ++i) {
    EXPECT_EQ(a.steps[a.steps.size() - i].loss, b.steps[b.steps.size() - i].loss);
  }
}

constexpr Precision kPrecisions[] = {Precision::kFp32, Precision::kBf16,
                                     Precision::kBf16Throughout};

TEST(ZenFlow, HasTheSameBitsAtEveryStage) {
  for (const Precision precision : kPrecisions) {
    for (const bool overlap : {false, true}) {
      SCOPED_TRACE(static_cast<int>(precision) * 2 + (overlap ? 1 : 0));
      const FlowOutcome first = TrainFlow(Flow(1, precision, overlap), 2, 8);
      ExpectSameFlow(TrainFlow(Flow(2, precision, overlap), 2, 8), first);
      ExpectSameFlow(TrainFlow(Flow(3, precision, overlap), 2, 8), first);
    }
  }
}

// Late by an interval, it is another run; what it learns, numerics.optimizers shows.
TEST(ZenFlow, TheOverlappedUpdateArrivesLate) {
  const FlowOutcome now = TrainFlow(Flow(2, Precision::kFp32), 2, 4);
  const FlowOutcome late = TrainFlow(Flow(2, Precision::kFp32, /*overlap=*/true), 2, 4);
  EXPECT_EQ(now.steps[0].loss, late.steps[0].loss);
  EXPECT_EQ(now.steps[2].loss, late.steps[2].loss);  // the rest is first due in step 3
  EXPECT_NE(now.steps[3].loss, late.steps[3].loss);
}

// In the warm-up, between two updates of the rest, and where they meet a selection; on another
// number of ranks at another stage what comes of it is the same but for sums over ranks.
TEST(ZenFlow, ResumesACheckpointWithTheSameBits) {
  for (const Precision precision : kPrecisions) {
    for (const bool overlap : {false, true}) {
      SCOPED_TRACE(static_cast<int>(precision) * 2 + (overlap ? 1 : 0));
      const testing::TemporaryFolder folder;
      const std::vector<int> saves = {1, 2, 3, 4, 6};
      const FlowRun run = Flow(2, precision, overlap);
      const FlowOutcome through = TrainFlow(run, 2, 8, folder.path(), saves);
      for (const int from : saves) {
        SCOPED_TRACE(from);
        const auto later = [&](int step) { return step > from; };
        std::vector<int> again;
        std::copy_if(saves.begin(), saves.end(), std::back_inserter(again), later);
        const testing::TemporaryFolder copy;
        std::filesystem::copy(folder.path(), copy.path(), std::filesystem::copy_options::recursive);
        for (const int step : again) {
          std::filesystem::remove_all(copy.path() / ("step-" + std::to_string(step)));
        }
        ExpectSameFlow(TrainFlow(run, 2, 8, copy.path(), again, from), through);
      }
    }
  }
}

TEST(ZenFlow, ResumesOnAnotherNumberOfRanks) {
  const testing::TemporaryFolder folder;
  const FlowOutcome two = TrainFlow(Flow(2, Precision::kFp32), 2, 8, folder.path(), {4, 6});
  for (const int from : {4, 6}) {
    for (const int ranks : {1, 3}) {
      const FlowOutcome other =
          TrainFlow(Flow(3, Precision::kFp32), ranks, 8, folder.path(), {}, from);
      for (const auto& [name, value] : two.parameters) {
        EXPECT_TRUE(value.allclose(other.parameters.at(name), 1e-4, 1e-5)) << name;
      }
    }
  }
}

// Behind step 3 an update is on its way: whoever writes weights has it end first, as an export
// does, and what is written as it was changes nothing.
TEST(ZenFlow, WritingWeightsKeepsLateUpdates) {
  const std::vector<std::function<void(Engine&)>> ways = {
      [](Engine& engine) { ExportAll(engine); },
      [](Engine& engine) {
        TensorAccess access(engine);
        const at::Tensor bias = access.GetFullFp32Param("layer.1.b").value();
        EXPECT_TRUE(access.SetFullFp32Param("layer.1.b", bias).ok());
      },
      [](Engine& engine) {
        const auto writes_nothing = [] { return OkStatus(); };
        EXPECT_TRUE(WithGatheredParameters(engine, {"layer.1.w"}, 0, writes_nothing).ok());
      }};
  for (const Precision precision : kPrecisions) {
    std::vector<FlowOutcome> outcomes;
    for (const auto& way : ways) {
      const FlowRun run = Flow(2, precision, /*overlap=*/true);
      testing::RunRanks(2, [&](comm::Communicator& world) {
        const auto engine = CreateFlowEngine(run, world).value();
        TrainTiny(*engine, run.tiny, 3);
        way(*engine);
        std::vector<StepResult> steps = TrainTiny(*engine, run.tiny, 3);
        auto parameters = ExportAll(*engine);
        if (world.rank() == 0) outcomes.push_back({std::move(steps), std::move(parameters)});
      });
    }
    for (const FlowOutcome& outcome : outcomes) {
      SCOPED_TRACE(static_cast<int>(precision) * 10 + (&outcome - outcomes.data()));
      ExpectSameFlow(outcome, outcomes[0]);
    }
  }
}

// Where ZenFlow's own state lies that a checkpoint would be made of.
std::map<std::string, const void*> FindAddresses(Engine& engine) {
  std::vector<checkpoint::TensorShard> shards;
  engine.state().AddShards(&shards);
  std::map<std::string, const void*> addresses;
  for (const checkpoint::TensorShard& shard : shards) {
    if (shard.source->count() == 0 || shard.name.find("/zenflow_") == std::string::npos) continue;
    const auto take = [&](std::span<const std::byte> bytes) {
      addresses[shard.name] = bytes.data();
      return OkStatus();
    };
    EXPECT_TRUE(shard.source->Read(0, 1, take).ok());
  }
  return addresses;
}

// Its own moments and waiting gradients, too: all are elsewhere afterwards.
TEST(ZenFlow, OffloadsAndReloadsItsState) {
  for (const Precision precision : kPrecisions) {
    for (const bool overlap : {false, true}) {
      SCOPED_TRACE(static_cast<int>(precision) * 2 + (overlap ? 1 : 0));
      const FlowRun run = Flow(2, precision, overlap);
      const FlowOutcome undisturbed = TrainFlow(run, 2, 6);
      testing::RunRanks(2, [&](comm::Communicator& world) {
        const auto engine = CreateFlowEngine(run, world).value();
        engine::DeepSpeedApi api(*engine);
        std::vector<StepResult> steps;
        for (int step = 1; step <= 6; ++step) {
          steps.push_back(TrainTiny(*engine, run.tiny, 1)[0]);
          if (overlap && step > 2) continue;  // an update that ends early is another run
          const auto here = FindAddresses(*engine);
          EXPECT_TRUE(api.offload_states().ok());
          for (const auto& [name, address] : FindAddresses(*engine)) {
            EXPECT_NE(address, here.at(name)) << name << " behind step " << step;
          }
          EXPECT_TRUE(step % 2 == 0 || api.reload_states().ok());
        }
        const auto parameters = ExportAll(*engine);
        if (world.rank() == 0) ExpectSameFlow({steps, parameters}, undisturbed);
      });
    }
  }
}

// While an update is on its way: of the same columns, of none, and of what no run has saved.
TEST(ZenFlow, ReadingTheStateChangesNothing) {
  const FlowRun run = Flow(2, Precision::kFp32, /*overlap=*/true);
  const FlowOutcome undisturbed = TrainFlow(run, 1, 8);
  testing::RunRanks(1, [&](comm::Communicator& world) {
    const auto engine = CreateFlowEngine(run, world).value();
    const nlohmann::json first = engine->state().State();
    std::vector<StepResult> steps = TrainTiny(*engine, run.tiny, 3);
    const nlohmann::json state = engine->state().State();
    EXPECT_TRUE(engine->state().CheckState(first).ok());
    EXPECT_TRUE(engine->state().CheckState(state).ok());
    nlohmann::json wrong = state;
    for (auto& columns : wrong["optimizer_state"]["columns"]) columns = {1'000'000};
    EXPECT_THAT(engine->state().CheckState(wrong).message(), HasSubstr("has columns that "));
    wrong["optimizer_state"].erase("selected");
    EXPECT_THAT(engine->state().CheckState(wrong).message(),
                HasSubstr("has a value that is missing or of another type"));
    EXPECT_EQ(engine->state().State(), state);
    for (const StepResult& step : TrainTiny(*engine, run.tiny, 5)) steps.push_back(step);
    ExpectSameFlow({std::move(steps), ExportAll(*engine)}, undisturbed);
  });
}

TEST(ZenFlow, ARunWithoutItNamesTheOptimizerOfTheCheckpoint) {
  const testing::TemporaryFolder folder;
  FlowRun run = Flow(1, Precision::kFp32);
  TrainFlow(run, 1, 1, folder.path(), {1});
  run.zenflow.reset();
  testing::RunRanks(1, [&](comm::Communicator& world) {
    const auto engine = CreateFlowEngine(run, world).value();
    checkpoint::Stateful* const parts[] = {&engine->state()};
    EXPECT_THAT(checkpoint::LoadCheckpoint(folder.path() / "step-1", parts, world).message(),
                HasSubstr("set optimizer.type and zero_optimization.zenflow as they were"));
  });
}

TEST(ZenFlow, UpdatesOtherColumnsWhenTheSumsDecide) {
  FlowRun automatic = Flow(2, Precision::kFp32);
  automatic.zenflow->update_interval.reset();
  automatic.zenflow->auto_ratio = 0.0;  // in every step
  FlowRun every = Flow(2, Precision::kFp32);
  every.zenflow->update_interval = 1;
  ExpectSameFlow(TrainFlow(automatic, 2, 6), TrainFlow(every, 2, 6));
  automatic.zenflow->auto_ratio = 1.0;
  const testing::TemporaryFolder folder;
  const FlowOutcome through = TrainFlow(automatic, 2, 8, folder.path(), {3});
  ExpectSameFlow(TrainFlow(automatic, 2, 8, folder.path(), {}, 3), through);
}

TEST(ZenFlow, IsRefusedWithPipelineStages) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const auto engine =
        CreateFlowEngine(Flow(1, Precision::kFp32), world, topology::Degrees{.pipeline = 2});
    EXPECT_THAT(engine.status().message(), HasSubstr("zenflow is built for data-parallel ranks"));
  });
}

TEST(EightBitState, HasTheSameBitsAtEveryStage) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const FlowOutcome first = TrainFlow(EightBits(0, precision), 2, 4);
    for (const int stage : {1, 2, 3}) {
      ExpectSameFlow(TrainFlow(EightBits(stage, precision), 2, 4), first);
    }
  }
}

TEST(EightBitState, ResumesACheckpointWithTheSameBitsInAnyPartition) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const testing::TemporaryFolder folder;
    const FlowRun run = EightBits(2, precision);
    const FlowOutcome through = TrainFlow(run, 2, 4, folder.path(), {2});
    ExpectSameFlow(TrainFlow(run, 2, 4, folder.path(), {}, 2), through);
    ExpectSameFlow(TrainFlow(EightBits(3, precision), 2, 4, folder.path(), {}, 2), through);
  }
}

// In fp32: where sums over ranks are rounded to bf16, a second moment near the smallest number of
// its map falls to zero on one number of ranks and not on another, and Adam's step is another.
TEST(EightBitState, ResumesOnAnotherNumberOfRanks) {
  const testing::TemporaryFolder folder;
  const FlowOutcome two = TrainFlow(EightBits(2, Precision::kFp32), 2, 4, folder.path(), {2});
  const FlowOutcome one = TrainFlow(EightBits(0, Precision::kFp32), 1, 4, folder.path(), {}, 2);
  for (const auto& [name, value] : two.parameters) {
    EXPECT_TRUE(value.allclose(one.parameters.at(name), 1e-3, 1e-3)) << name;
  }
}

TEST(EightBitState, TakesAByteAndAScaleForEveryBlock) {
  testing::RunRanks(1, [&](comm::Communicator& world) {
    std::int64_t bytes[2] = {0, 0};
    for (const bool eight_bits : {false, true}) {
      FlowRun run = EightBits(0, Precision::kFp32);
      run.tiny.shape = {.vocabulary = 512, .width = 128};
      run.eight_bits = eight_bits;
      device::MemoryLedger ledger;
      const auto engine = CreateFlowEngine(run, world, {}, &ledger).value();
      TrainTiny(*engine, run.tiny, 1);
      bytes[eight_bits] =
          ledger.Peak(device::MemoryUse::kOptimizerState, device::MemoryTier::kHost);
    }
    EXPECT_LT(static_cast<double>(bytes[1]), 0.26 * static_cast<double>(bytes[0]));
  });
}

// 8 bits cost a run little beside the same one in fp32.
TEST(EightBitState, LearnsAsTheFp32StateDoes) {
  FlowRun run = EightBits(2, Precision::kFp32);
  run.tiny.shape = {.vocabulary = 70, .width = 24};
  const FlowOutcome ours = TrainFlow(run, 2, 30);
  run.eight_bits = false;
  const FlowOutcome plain = TrainFlow(run, 2, 30);
  for (std::size_t i = 0; i < plain.steps.size(); i += 5) {
    std::printf("step %2zu fp32 %.4f, 8 bits %.4f\n", i + 1, plain.steps[i].loss,
                ours.steps[i].loss);
  }
  EXPECT_NE(ours.steps.back().loss, plain.steps.back().loss);
  const double decrease = plain.steps.front().loss - plain.steps.back().loss;
  EXPECT_NEAR(ours.steps.back().loss, plain.steps.back().loss, 0.05 * decrease);
}

}  // namespace
}  // namespace ds::tests
