// One rank on one GPU, on a stream of its own, trains as one on the CPU does.

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "runtime/comm/join_job.h"
#include "runtime/comm/local_world.h"
#include "runtime/device/activation_meter.h"
#include "tests/gpu/on_gpu.h"
#include "tests/ranks/tiny_model.h"

namespace ds::tests {
namespace {

constexpr int kTrainedSteps = 5;

struct Outcome {
  std::vector<StepResult> steps;
  std::map<std::string, at::Tensor> parameters;
};

Outcome Train(const TinyRun& run, comm::Communicator& world) {
  const auto engine = MakeTinyEngine(run, world);
  Outcome outcome{.steps = TrainTiny(*engine, run, kTrainedSteps)};
  outcome.parameters = ExportAll(*engine);
  return outcome;
}

// Sums are made in other orders there.
void ExpectClose(const Outcome& gpu, const Outcome& cpu) {
  constexpr double kTolerance = 1e-4;
  for (int i = 0; i < kTrainedSteps; ++i) {
    EXPECT_NEAR(gpu.steps[i].loss, cpu.steps[i].loss, kTolerance) << "step " << i + 1;
    EXPECT_NEAR(gpu.steps[i].grad_norm, cpu.steps[i].grad_norm, kTolerance) << "step " << i + 1;
  }
  for (const auto& [name, value] : cpu.parameters) {
    EXPECT_TRUE(gpu.parameters.at(name).allclose(value, 0, kTolerance)) << name;
  }
}

class GpuMemory : public ds::testing::OnGpu<::testing::Test> {};

// As a rank does, which asks before its first tensor on the GPU.
TEST_F(GpuMemory, IsKnownFromTheBeginning) {
  device::MemoryLedger ledger;
  EXPECT_GE(device::ActivationMeter(ledger, Opened()->device).Mark().allocated.bytes, 0);
}

class GpuTrain : public ds::testing::OnGpu<::testing::TestWithParam<int>> {};

// What runs on the default stream by mistake reads and writes too early or too late.
TEST_P(GpuTrain, MatchesTheCpuOnItsOwnStream) {
  const auto gpu = comm::ConnectWorld({.job_id = "gpu-train"}, *Opened());
  ASSERT_TRUE(gpu.ok()) << gpu.status().message();
  const auto cpu = comm::MakeLocalWorld(1);
  for (const std::int64_t accumulation : {1, 2}) {
    const TinyRun run{.stage = GetParam(), .accumulation = accumulation};
    const Outcome expected = Train(run, *cpu[0]);
    const c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
    const c10::StreamGuard guard(cuda.getStreamFromGlobalPool(Opened()->device));
    ExpectClose(Train(run, **gpu), expected);
  }
}

// What is away comes back by copies, and a group of one rank takes part in every collective.
TEST_P(GpuTrain, MatchesWithStateOffloadedToTheHost) {
  const auto gpu = comm::ConnectWorld({.job_id = "gpu-offload"}, *Opened());
  ASSERT_TRUE(gpu.ok()) << gpu.status().message();
  const auto cpu = comm::MakeLocalWorld(1);
  TinyRun run{.stage = GetParam(), .accumulation = 2};
  const Outcome expected = Train(run, *cpu[0]);
  if (run.stage > 0) run.zero.offload_optimizer.device = config::OffloadDevice::kCpu;
  if (run.stage == 3) run.zero.offload_param.device = config::OffloadDevice::kCpu;
  for (const bool overlap : {false, true}) {
    run.zero.overlap_comm = overlap;
    ExpectClose(Train(run, **gpu), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, GpuTrain, ::testing::Range(0, 4));

}  // namespace
}  // namespace ds::tests
