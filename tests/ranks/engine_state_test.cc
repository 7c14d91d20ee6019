// A checkpoint of one world and stage goes on in any other.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/files.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/deepspeed_api.h"
#include "runtime/zero/flat_parameters.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

struct Setting {
  int world_size;
  int stage;
};

using checkpoint::SaveRequest;
using Parameters = std::map<std::string, at::Tensor>;

// Two steps, a checkpoint, a third step; returns the parameters at the end.
Parameters TrainAndSave(const std::filesystem::path& root, int world_size, const TinyRun& run) {
  Parameters result;
  testing::RunRanks(world_size, [&](comm::Communicator& world) {
    const auto engine = MakeTinyEngine(run, world);
    TrainTiny(*engine, run, 2);
    checkpoint::Stateful* const parts[] = {&engine->state()};
    const auto saved = checkpoint::SaveCheckpoint({.root = root, .step = 2}, parts, world);
    EXPECT_TRUE(saved.ok()) << saved.status().message();
    TrainTiny(*engine, run, 1);
    auto all = ExportAll(*engine);
    if (world.rank() == 0) result = std::move(all);
  });
  return result;
}

// The third step after loading.
Parameters LoadAndTrain(const std::filesystem::path& root, int world_size, const TinyRun& run) {
  Parameters result;
  testing::RunRanks(world_size, [&](comm::Communicator& world) {
    const auto engine = MakeTinyEngine(run, world);
    checkpoint::Stateful* const parts[] = {&engine->state()};
    const Status loaded = checkpoint::LoadCheckpoint(root / "step-2", parts, world);
    EXPECT_TRUE(loaded.ok()) << loaded.message();
    EXPECT_EQ(engine->finished_steps(), 2);
    EXPECT_EQ(TrainTiny(*engine, run, 1)[0].step, 3);
    auto all = ExportAll(*engine);
    if (world.rank() == 0) result = std::move(all);
  });
  return result;
}

void ExpectClose(const Parameters& a, const Parameters& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, value] : a) {
    EXPECT_TRUE(value.allclose(b.at(name), 0, tolerance)) << name;
  }
}

TEST(EngineState, ResumesBitForBitAtAnyStageInAWorldOfTheSameSize) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kBf16State,
                                    Precision::kBf16Masters, Precision::kBf16Throughout}) {
    for (const int saved_at : {0, 2, 3}) {
      const testing::TemporaryFolder folder;
      const Parameters expected =
          TrainAndSave(folder.path(), 3, {.stage = saved_at, .precision = precision});
      for (const int stage : {0, 1, 2, 3}) {
        SCOPED_TRACE("from stage " + std::to_string(saved_at) + " to " + std::to_string(stage));
        ExpectClose(LoadAndTrain(folder.path(), 3, {.stage = stage, .precision = precision}),
                    expected, 0.0);
      }
    }
  }
}

TEST(EngineState, GoesFromGroupsOfMicsToAnyOthersAndBack) {
  const TinyRun groups{.stage = 3, .zero = {.mics_shard_size = 2}};
  const testing::TemporaryFolder of_groups, of_all;
  const Parameters expected = TrainAndSave(of_groups.path(), 4, groups);
  ExpectClose(TrainAndSave(of_all.path(), 4, {.stage = 2}), expected, 1e-6);
  ExpectClose(LoadAndTrain(of_groups.path(), 4, groups), expected, 0.0);
  ExpectClose(LoadAndTrain(of_groups.path(), 3, {.stage = 0}), expected, 1e-6);
  ExpectClose(LoadAndTrain(of_all.path(), 4, groups), expected, 1e-6);
}

// Which of the model's tensors have bytes on this rank.
std::vector<bool> ListPresent(const BlockList& model) {
  std::vector<bool> present;
  for (const auto& block : model.blocks()) {
    for (const at::Tensor& tensor : block->parameters()) {
      present.push_back(zero::HasValues(tensor));
    }
  }
  return present;
}

TEST(EngineState, SavesAndLoadsOffloadedStateInPlace) {
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    const TinyRun run{.stage = stage, .precision = Precision::kBf16};
    const testing::TemporaryFolder folder;
    const Parameters expected = TrainAndSave(folder.path() / "plain", 2, run);
    Parameters result;
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const auto model = MakeTinyModel(run.shape, run.dtype());
      const auto engine = Engine::create(model, TinyConfig(run), {.world = &world}).value();
      TrainTiny(*engine, run, 2);
      EXPECT_TRUE(DeepSpeedApi(*engine).offload_states().ok());
      checkpoint::Stateful* const parts[] = {&engine->state()};
      const SaveRequest request{.root = folder.path() / "offloaded", .step = 2};
      EXPECT_TRUE(checkpoint::SaveCheckpoint(request, parts, world).ok());
      EXPECT_THAT(ListPresent(*model), ::testing::Each(false)) << "nothing came back";

      const auto other = MakeTinyEngine(run, world);
      checkpoint::Stateful* const others[] = {&other->state()};
      EXPECT_TRUE(DeepSpeedApi(*other).offload_states().ok());
      EXPECT_TRUE(checkpoint::LoadCheckpoint(request.root / "step-2", others, world).ok());
      TrainTiny(*other, run, 1);
      auto all = ExportAll(*other);
      if (world.rank() == 0) result = std::move(all);
    });
    ExpectClose(result, expected, 0.0);
    for (const char* file : {"rank-00000.bin", "rank-00001.bin"}) {
      EXPECT_EQ(ReadFile(folder.path() / "plain/step-2" / file).value(),
                ReadFile(folder.path() / "offloaded/step-2" / file).value());
    }
  }
}

TEST(EngineState, ResumesInAWorldOfAnotherSize) {
  for (const Setting from : {Setting{1, 0}, Setting{4, 1}, Setting{2, 3}}) {
    const testing::TemporaryFolder folder;
    const Parameters expected = TrainAndSave(folder.path(), from.world_size, {.stage = from.stage});
    for (const Setting to : {Setting{1, 3}, Setting{2, 2}, Setting{3, 3}, Setting{4, 0}}) {
      SCOPED_TRACE("to " + std::to_string(to.world_size) + " ranks");
      ExpectClose(LoadAndTrain(folder.path(), to.world_size, {.stage = to.stage}), expected, 1e-6);
    }
  }
}

// A checkpoint says nothing of buffers: where the shards of another version or grouping end is no
// matter.
TEST(EngineState, ResumesBitForBitWithAnyShardBoundaries) {
  const auto two_groups = [](int, const std::string& name, const at::Tensor&) {
    return optim::ParameterGroup{.muon = name.ends_with('b')};  // which Adam does not look at
  };
  for (const int stage : {1, 3}) {
    TinyRun one{.stage = stage, .gradient_clipping = 0.0}, two = one;
    two.groups = two_groups;
    for (const auto& [from, to] : {std::pair(one, two), std::pair(two, one)}) {
      const testing::TemporaryFolder folder;
      const Parameters expected = TrainAndSave(folder.path(), 3, from);
      ExpectClose(LoadAndTrain(folder.path(), 3, to), expected, 0.0);
    }
  }
}

TEST(EngineState, EveryOptimizersStateResumesBitForBit) {
  const config::OptimizerAlgorithm algorithms[] = {config::SgdConfig{.momentum = 0.95},
                                                   config::AdagradConfig{}, config::LionConfig{},
                                                   config::LambConfig{}, config::MuonConfig{}};
  for (const config::OptimizerAlgorithm& algorithm : algorithms) {
    const testing::TemporaryFolder folder;
    const TinyRun saved{.stage = 3, .optimizer = algorithm};
    const Parameters expected = TrainAndSave(folder.path(), 2, saved);
    for (const int stage : {0, 2}) {
      SCOPED_TRACE(std::string("optimizer ") + std::to_string(algorithm.index()));
      TinyRun loaded = saved;
      loaded.stage = stage;
      ExpectClose(LoadAndTrain(folder.path(), 2, loaded), expected, 0.0);
    }
  }
}

TEST(EngineState, RefusesTheStateOfAnotherOptimizerByName) {
  testing::RunRanks(1, [](comm::Communicator& world) {
    const auto engine = MakeTinyEngine({}, world);
    nlohmann::json state = engine->state().State();
    EXPECT_TRUE(engine->state().CheckState(state).ok());
    state["optimizer"] = "Lion";
    EXPECT_THAT(engine->state().CheckState(state).message(),
                ::testing::HasSubstr("optimizer Lion, which Adam cannot resume from"));
    state.erase("optimizer");
    EXPECT_EQ(engine->state().CheckState(state).code(), StatusCode::kDataLoss);
  });
}

TEST(EngineState, RefusesAStateWithoutItsCounts) {
  testing::RunRanks(1, [](comm::Communicator& world) {
    const auto engine = MakeTinyEngine({}, world);
    const Status status = engine->state().LoadState({{"finished_steps", 3}});
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  });
}

TEST(EngineState, IsNotSavedInsideAStep) {
  const testing::TemporaryFolder folder;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const TinyRun run{.stage = 2, .accumulation = 2};
    const auto engine = MakeTinyEngine(run, world);
    checkpoint::Stateful* const parts[] = {&engine->state()};
    RunMicroBatch(*engine, run, 0);
    const auto saved = checkpoint::SaveCheckpoint({.root = folder.path(), .step = 1}, parts, world);
    EXPECT_THAT(saved.status().message(), ::testing::HasSubstr("between steps only"));
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "step-1"));
    RunMicroBatch(*engine, run, 1);
    EXPECT_TRUE(engine->step().ok());
    EXPECT_TRUE(checkpoint::SaveCheckpoint({.root = folder.path(), .step = 1}, parts, world).ok());
  });
}

}  // namespace
}  // namespace ds::tests
