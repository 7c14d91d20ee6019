// What a run does with a gradient that is not finite when it is told to go back.

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint_format/latest.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/loop/train_loop.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RewindObserver : public engine::TrainLoopObserver {
 public:
  void OnStep(const StepResult& result, double /*seconds*/) override {
    steps.push_back(result.step);
  }
  void OnCheckpoint(std::int64_t /*step*/, const std::filesystem::path& /*path*/) override {}
  void OnRewind(const StepResult& result, const std::filesystem::path& checkpoint) override {
    rewinds.push_back(result.non_finite + " -> " + checkpoint.filename().string());
  }

  std::vector<std::int64_t> steps;
  std::vector<std::string> rewinds;
};

struct RewoundRun {
  Status status;
  RewindObserver observer;
  std::map<std::string, at::Tensor> parameters;
};

// To step 6 with batches 0, 1, 2, ... but those of `left_out`; rank 1's are poisoned in `poisoned`.
// A generation behind the first goes on from step 2.
RewoundRun Train(const std::filesystem::path& root, const std::set<int>& left_out,
                 const std::set<int>& poisoned, std::int64_t generation = 0) {
  if (generation > 0) {
    EXPECT_TRUE(checkpoint::TakeOver(root / "step-2", generation, /*start=*/0).ok());
  }
  RewoundRun outcome;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const TinyRun run{.stage = 2};
    const auto engine =
        Engine::create(MakeTinyModel(run.shape, at::kFloat), TinyConfig(run),
                       {.world = &world, .non_finite = engine::NonFinitePolicy::kRewind})
            .value();
    int batch = -1;
    const auto next = [&]() -> StatusOr<Bundle> {
      do {
        ++batch;
      } while (left_out.contains(batch));
      Bundle bundle = TinyBatch(run, world, batch);
      const bool bad = world.rank() == 1 && poisoned.contains(batch);
      bundle.extras["poison"] =
          at::full({}, bad ? std::numeric_limits<double>::infinity() : 1.0, at::kFloat);
      return bundle;
    };
    checkpoint::Stateful* const parts[] = {&engine->state()};
    checkpoint::Lineage lineage{.generation = generation};
    if (generation > 0) {
      EXPECT_TRUE(checkpoint::LoadCheckpoint(root / "step-2", parts, world, &lineage).ok());
    }
    RewindObserver observer;
    const engine::TrainLoopEnd end = engine::RunTrainLoop(
        *engine, next, parts,
        {.total_steps = 6, .save_every = 2, .checkpoint_root = root, .lineage = &lineage},
        observer);
    auto parameters = ExportAll(*engine);
    if (world.rank() == 0) outcome = {end.status, std::move(observer), std::move(parameters)};
  });
  return outcome;
}

TEST(Rewind, ResumesFromTheNewestCheckpointWithTheDataAfterTheStep) {
  const testing::TemporaryFolder folder, other;
  const RewoundRun rewound = Train(folder.path(), {}, {3});
  ASSERT_TRUE(rewound.status.ok()) << rewound.status.message();
  EXPECT_THAT(rewound.observer.steps, ElementsAre(1, 2, 3, 4, 3, 4, 5, 6));
  EXPECT_THAT(rewound.observer.rewinds,
              ElementsAre(AllOf(HasSubstr("rank 1, micro-step 1"), HasSubstr("-> step-2"))));
  // As if batches 2 and 3 had never been.
  const RewoundRun without = Train(other.path(), {2, 3}, {});
  ASSERT_TRUE(without.status.ok());
  for (const auto& [name, value] : rewound.parameters) {
    EXPECT_TRUE(value.equal(without.parameters.at(name))) << name;
  }
}

// A job that was sent back to step 2 leaves steps 4 and 6 to another future.
TEST(Rewind, NeverTakesAbandonedCheckpoints) {
  const testing::TemporaryFolder folder;
  ASSERT_TRUE(Train(folder.path(), {}, {}).status.ok());
  const RewoundRun rewound = Train(folder.path(), {}, {1, 4}, /*generation=*/1);
  ASSERT_TRUE(rewound.status.ok()) << rewound.status.message();
  EXPECT_THAT(rewound.observer.steps, ElementsAre(3, 4, 3, 4, 5, 5, 6));
  EXPECT_THAT(rewound.observer.rewinds,
              ElementsAre(HasSubstr("-> step-2"), HasSubstr("-> step-4")));
}

TEST(Rewind, EndsTheRunWithoutACheckpointOrWhenItDoesNotHelp) {
  const testing::TemporaryFolder folder, other;
  EXPECT_THAT(Train(folder.path(), {}, {0}).status.message(),
              AllOf(HasSubstr("rank 1"), HasSubstr("no good checkpoint to rewind to")));
  EXPECT_THAT(Train(other.path(), {}, {2, 3}).status.message(),
              HasSubstr("has been rewound to step 2 before"));
}

}  // namespace
}  // namespace ds::tests
