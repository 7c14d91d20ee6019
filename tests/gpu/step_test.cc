// What a step asks of a GPU: one wait, and nothing that a graph could not repeat.

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/join_job.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/step_update.h"
#include "tests/gpu/gpu_decoder.h"
#include "tests/gpu/on_gpu.h"
#include "tests/gpu/probe/cuda_probe.h"

namespace ds::tests {
namespace {

using engine::EngineComponents;
using engine::Executor;

class GpuStep : public ds::testing::OnGpu<::testing::TestWithParam<int>> {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped()) return;
    void* const library = ::dlopen(ds::testing::kCudaProbeLibrary, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << ::dlerror();
    const auto entry = reinterpret_cast<ds::testing::CudaProbeEntry>(
        ::dlsym(library, ds::testing::kCudaProbeEntry));
    ASSERT_NE(entry, nullptr);
    probe_ = entry();
    probe_->RefuseWaits(false);
  }

  static comm::Communicator& World() {
    // Not ended behind what CUDA has of its own.
    static auto* const world =
        comm::ConnectWorld({.job_id = "gpu-step"}, *Opened()).value().release();
    return *world;
  }
  static c10::Stream NewStream() {
    const c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
    return cuda.getStreamFromGlobalPool(Opened()->device);
  }

  static StepResult Step(EngineComponents& engine, const models::Bundle& batch) {
    return Executor(engine).RunStep([&]() -> StatusOr<models::Bundle> { return batch; }).value();
  }
  std::vector<double> LossesWithoutWaits(const GpuDecoder& run, int steps) const {
    const auto engine = BuildDecoder(run, World());
    const models::Bundle batch = MakeBatch(run, World());
    std::vector<double> losses;
    for (int i = 0; i < steps; ++i) {
      probe_->RefuseWaits(i > 0);  // the first may take memory from the driver
      const StepResult result = Step(*engine, batch);
      probe_->RefuseWaits(false);
      losses.push_back(result.loss);
    }
    return losses;
  }

  const ds::testing::CudaProbe* probe_ = nullptr;
};

constexpr int kSteps = 5;

void ExpectNear(const std::vector<double>& ours, const std::vector<double>& expected) {
  ASSERT_EQ(ours.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(ours[i], expected[i], 2e-3) << i;
  EXPECT_LT(expected.back(), expected.front() - 0.1) << "it does not learn";
}

TEST_P(GpuStep, WaitsForItsNumbersAlone) {
  for (const bool bf16 : {false, true}) {
    for (const std::int64_t accumulation : {1, 2}) {
      LossesWithoutWaits({.stage = GetParam(), .bf16 = bf16, .accumulation = accumulation}, 3);
    }
  }
}

TEST_F(GpuStep, LookOutSeesAWait) {
  const at::Tensor value = at::zeros({1}, at::TensorOptions().device(Opened()->device));
  probe_->RefuseWaits(true);
  EXPECT_THROW(value.item<float>(), c10::Error);
  probe_->RefuseWaits(false);
}

// What comes from the host and goes back there moves beside the computation, in order.
TEST_F(GpuStep, DoesNotWaitForStateOnTheHost) {
  const GpuDecoder here{.stage = 3};
  const auto expected = LossesWithoutWaits(here, kSteps);
  for (const bool parameters : {false, true}) {
    for (const bool optimizer : {false, true}) {
      GpuDecoder offload = here;
      offload.offloads_parameters = parameters;
      offload.offloads_optimizer = optimizer;
      SCOPED_TRACE(std::string(parameters ? "parameters " : "") + (optimizer ? "optimizer" : ""));
      ExpectNear(LossesWithoutWaits(offload, kSteps), expected);
    }
  }
}

TEST_F(GpuStep, AStepThatIsNotFiniteLeavesTheParametersAlone) {
  for (const bool offload : {false, true}) {
    const GpuDecoder run{.stage = 3, .offloads_parameters = offload, .offloads_optimizer = offload};
    const auto engine = BuildDecoder(run, World());
    engine->step.non_finite = engine::NonFinitePolicy::kSkip;
    const models::Bundle batch = MakeBatch(run, World());
    const StepResult first = Step(*engine, batch);
    EXPECT_FALSE(first.skipped);
    Executor executor(*engine);
    const at::Tensor loss = executor.Forward(batch);
    executor.Backward(loss * std::numeric_limits<float>::infinity(), /*scale_wrt_gas=*/true);
    ASSERT_TRUE(executor.Reduce().ok());
    EXPECT_TRUE(executor.Step().value().skipped);
    // As if it had never been.
    const StepResult again = Step(*engine, batch);
    EXPECT_NEAR(again.loss, loss.item<double>(), 1e-6);
  }
}

// Forward, backward, norm, decision and update as one graph, repeated, against steps of their own.
TEST_P(GpuStep, IsRepeatedByAGraph) {
  if (GetParam() == 3) GTEST_SKIP() << "parameters come and go there";
  const c10::StreamGuard guard(NewStream());
  const GpuDecoder run{.stage = GetParam()};
  const models::Bundle batch = MakeBatch(run, World());
  std::vector<double> expected;
  const auto eager = BuildDecoder(run, World());
  for (int i = 0; i < kSteps; ++i) expected.push_back(Step(*eager, batch).loss);

  const auto engine = BuildDecoder(run, World());
  std::vector<double> losses;
  for (int i = 0; i < 2; ++i) losses.push_back(Step(*engine, batch).loss);
  at::Tensor loss;
  Executor executor(*engine);
  engine::StepUpdate update(*engine);
  const auto repeat = probe_->Capture([&] {
    loss = executor.Forward(batch);
    executor.Backward(loss, /*scale_wrt_gas=*/true);
    ASSERT_TRUE(executor.Reduce().ok());
    update.AgreeOnWeight();
    auto scheduled = engine->step.rates.FindNext(engine->step.state.counts.applied);
    ASSERT_TRUE(update.Launch(std::move(scheduled)).ok());
    engine->model.optimizer->ClearGradients();
  });
  while (std::ssize(losses) < kSteps) {
    repeat();
    losses.push_back(loss.item<double>());
  }
  ExpectNear(losses, expected);
}

INSTANTIATE_TEST_SUITE_P(Stages, GpuStep, ::testing::Range(0, 4));

}  // namespace
}  // namespace ds::tests
