// What ranks tell each other takes the control group; their own group's device may be a GPU.

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <limits>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/tensor_access.h"
#include "runtime/engine/train_loop.h"
#include "tests/ranks/observed_backend.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

// Stands for NCCL on a machine without a GPU, where a tensor's device tells nothing. What training
// moves on the device are flat buffers, in the dtype of parameters and gradients. Integers, doubles
// and a few elements are numbers, verdicts and texts, which NCCL would refuse for being on the CPU.
void RefuseWhatIsNotTraining(c10d::OpType /*op*/, const at::Tensor& tensor) {
  constexpr std::int64_t kFewElements = 8;
  TORCH_CHECK(tensor.scalar_type() == at::kFloat && tensor.numel() > kFewElements,
              "Tensors must be CUDA and dense, not ", tensor.numel(), " of ", tensor.dtype());
}

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

TEST(ControlGroup, CarriesAllThatIsNotTraining) {
  for (const int size : {1, 2}) {
    for (const auto& run :
         {TinyRun{.stage = 0}, TinyRun{.stage = 3}, TinyRun{.optimizer = config::LambConfig{}}}) {
      const testing::TemporaryFolder folder;
      testing::RunRanks(size, [&](comm::Communicator& host) {
        comm::Communicator world(
            c10::make_intrusive<ObservedBackend>(host.backend(), RefuseWhatIsNotTraining),
            c10::kCPU, std::make_unique<comm::Communicator>(host.backend()));
        TrainThroughControlGroup(world, run, folder.path());
      });
    }
  }
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
