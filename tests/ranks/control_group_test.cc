// What ranks tell each other takes the control group; their own group's device may be a GPU.

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <limits>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/loop/train_loop.h"
#include "runtime/engine/tensor_access.h"
#include "tests/ranks/device_world.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

constexpr auto kHost = config::OffloadDevice::kCpu;

class QuietObserver : public engine::TrainLoopObserver {
 public:
  void OnStep(const StepResult& /*result*/, double /*seconds*/) override {}
  void OnCheckpoint(std::int64_t /*step*/, const std::filesystem::path& /*path*/) override {}
  void OnRewind(const StepResult& /*result*/, const std::filesystem::path& /*to*/) override {
    ++rewinds;
  }

  int rewinds = 0;
};

// Trains six steps with checkpoints, a rewind among them, loads and exports.
void TrainThroughControlGroup(comm::Communicator& world, const TinyRun& run,
                              const std::filesystem::path& root) {
  const auto engine =
      Engine::create(MakeTinyModel(run.shape, at::kFloat), TinyConfig(run),
                     {.world = &world, .non_finite = engine::NonFinitePolicy::kRewind})
          .value();
  int batch = -1;
  const auto next = [&]() -> StatusOr<Bundle> {
    Bundle bundle = TinyBatch(run, world, ++batch);
    const double poison = batch == 3 ? std::numeric_limits<double>::infinity() : 1.0;
    bundle.extras["poison"] = at::full({}, poison, at::kFloat);
    return bundle;
  };
  checkpoint::Stateful* const parts[] = {&engine->state()};
  QuietObserver observer;
  const engine::TrainLoopEnd end = engine::RunTrainLoop(
      *engine, next, parts, {.total_steps = 6, .save_every = 2, .checkpoint_root = root}, observer);
  EXPECT_TRUE(end.status.ok()) << end.status.message();
  EXPECT_EQ(observer.rewinds, 1);
  EXPECT_TRUE(checkpoint::LoadCheckpoint(root / "step-4", parts, world).ok());
  EXPECT_TRUE(TensorAccess(*engine).GetFullFp32Param("table").ok());
  EXPECT_EQ(ExportAll(*engine).empty(), world.rank() != 0);
}

void ExpectCarriesAll(int ranks, const TinyRun& run) {
  const testing::TemporaryFolder folder;
  testing::RunRanks(ranks, [&](comm::Communicator& host) {
    TrainThroughControlGroup(*MakeDeviceWorld(host), run, folder.path());
  });
}

TEST(ControlGroup, CarriesAllThatIsNotTraining) {
  const config::ZeroConfig state_on_host{.offload_optimizer = {.device = kHost}};
  const config::ZeroConfig all_on_host{.offload_param = {.device = kHost},
                                       .offload_optimizer = {.device = kHost}};
  for (const int ranks : {1, 2}) {
    ExpectCarriesAll(ranks, {.stage = 0});
    ExpectCarriesAll(ranks, {.stage = 3});
    ExpectCarriesAll(ranks, {.optimizer = config::LambConfig{}});
    ExpectCarriesAll(ranks, {.stage = 2, .optimizer = config::MuonConfig{}});
    ExpectCarriesAll(ranks, {.stage = 2, .zero = state_on_host});
    ExpectCarriesAll(ranks, {.stage = 3, .zero = all_on_host});
  }
  ExpectCarriesAll(4, {.stage = 3, .zero = {.mics_shard_size = 2}});
}

// Counts how often it is told to end.
class AbortedBackend : public c10d::Backend {
 public:
  explicit AbortedBackend(int* aborts) : c10d::Backend(/*rank=*/0, /*size=*/1), aborts_(aborts) {}
  const std::string getBackendName() const override { return "aborted"; }
  void abort() override { ++*aborts_; }

 private:
  int* aborts_;
};

TEST(ControlGroup, AbortEndsTheDevicesGroupsOfEveryLevel) {
  testing::RunRanks(1, [](comm::Communicator& world) {
    int aborts = 0;
    const auto make = [&](comm::Communicator&) -> c10::intrusive_ptr<c10d::Backend> {
      return c10::make_intrusive<AbortedBackend>(&aborts);
    };
    comm::Communicator device(make(world), c10::kCPU,
                              std::make_unique<comm::Communicator>(world.backend()), make);
    device.Group("model state", {0}).Group("secondary shards", {0}).Group("pairs", {0});
    device.Group("batch", {0});
    device.Abort("enough");
    EXPECT_EQ(aborts, 5);
    EXPECT_THROW(world.Barrier(), c10::Error) << "it has been told over the control group";
  });
}

}  // namespace
}  // namespace ds::tests
