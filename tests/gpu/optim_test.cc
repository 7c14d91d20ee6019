// The optimizers' CUDA kernels, held to the same loop on the host and to the CPU's kernels.

#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "runtime/optim/kernels/flat_update.h"
#include "runtime/optim/optimizer.h"
#include "tests/gpu/on_gpu.h"
#include "tests/unit/optim/emulated_launch.h"
#include "tests/unit/optim/flat_cases.h"
#include "tests/unit/optim/optimizer_slices.h"

namespace ds::optim {
namespace {

class GpuOptim : public ds::testing::OnGpu<::testing::Test> {
 protected:
  static at::Device Gpu() { return Opened()->device; }
};

TEST_F(GpuOptim, KernelsMatchTheHost) {
  for (const FlatCase& each : EveryCase()) {
    for (const FlatOp& op : EveryOp()) {
      const FlatBuffers host = MakeBuffers(each);
      const FlatBuffers gpu = CopyTo(host, each, Gpu());
      UpdateBy(&EmulatedUpdate, op, host.slice);
      UpdateBy(FindFlatUpdate(Gpu()), op, gpu.slice);
      for (std::size_t i = 0; i < host.full.size(); ++i) {
        EXPECT_LE(Deviation(gpu.full[i].cpu(), host.full[i]), Tolerance(host.full[i].scalar_type()))
            << NameOf(op) << ", view " << i << ": " << each.Name();
      }
    }
  }
}

TEST_F(GpuOptim, OptimizersMatchTheCpuKernels) {
  const config::OptimizerAlgorithm algorithms[] = {
      config::AdamConfig{},       config::SgdConfig{.momentum = 0.8},
      config::AdagradConfig{},    config::LionConfig{},
      config::LambConfig{},       config::OneBitAdamConfig{},
      config::OneBitLambConfig{}, config::ZeroOneAdamConfig{}};
  for (const config::OptimizerAlgorithm& algorithm : algorithms) {
    const auto optimizer = MakeOptimizer({.weight_decay = 0.1, .algorithm = algorithm});
    OptimizerSlice host = RandomPart(*optimizer, 5000);
    host.gradient = host.gradient.to(at::kBFloat16);
    OptimizerSlice gpu = host;
    gpu.parameter = host.parameter.to(Gpu());
    gpu.gradient = host.gradient.to(Gpu());
    for (at::Tensor& state : gpu.state) state = state.to(Gpu());
    gpu.launch = FindFlatUpdate(Gpu());
    gpu.published = at::zeros({5000}, gpu.gradient.options());
    for (int step = 1; step <= 3; ++step) {
      const Update update{.lr = 1e-2, .gradient_scale = 0.5, .step = step};
      Step(*optimizer, update, {host});
      Step(*optimizer, update, {gpu});
    }
    EXPECT_LT(Distance(host.parameter, gpu.parameter.cpu()), 5e-6) << optimizer->name();
    EXPECT_TRUE(gpu.published.equal(gpu.parameter.to(at::kBFloat16))) << optimizer->name();
  }
}

TEST_F(GpuOptim, CountsBeyondThirtyTwoBits) {
  constexpr std::int64_t kCount = (std::int64_t{1} << 31) + 5;
  const auto options = at::TensorOptions(at::kBFloat16).device(Gpu());
  OptimizerSlice slice;
  try {
    slice = {.parameter = at::zeros({kCount}, options),
             .gradient = at::full({kCount}, -1.0, options)};
  } catch (const c10::OutOfMemoryError&) {
    GTEST_SKIP() << "not run: this GPU has less than 8 GiB to spare";
  }
  UpdateBy(FindFlatUpdate(Gpu()), DecayAndStepOp{1.0F, 0.5F}, slice);
  EXPECT_EQ(slice.parameter.min().item<double>(), 0.5);
  EXPECT_EQ(slice.parameter.max().item<double>(), 0.5);
}

// The gradient comes at the end of long work on a stream of its own; on any other stream the update
// would find zeros.
TEST_F(GpuOptim, KernelsFollowTheCurrentStream) {
  const c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
  const at::Tensor matrix = at::randn({4096, 4096}, at::TensorOptions(at::kFloat).device(Gpu()));
  OptimizerSlice slice{.parameter = at::zeros({1 << 20}, matrix.options()),
                       .gradient = at::zeros({1 << 20}, matrix.options())};
  static_cast<void>(slice.gradient[0].item<float>());  // what filled them has ended
  const c10::StreamGuard guard(cuda.getStreamFromGlobalPool(Gpu()));
  at::Tensor product = matrix;
  for (int i = 0; i < 20; ++i) product = at::matmul(matrix, product).mul_(1e-3);
  slice.gradient.fill_(1.0).add_(product.flatten().narrow(0, 0, 1 << 20), 0.0);
  UpdateBy(FindFlatUpdate(Gpu()), DecayAndStepOp{1.0F, 1.0F}, slice);
  EXPECT_EQ(slice.parameter.max().item<double>(), -1.0);
}

TEST_F(GpuOptim, AnImpossibleLaunchIsAnError) {
  FlatViews views = ViewSlice({.parameter = at::zeros({8}, at::TensorOptions().device(Gpu()))});
  views.device = 1000;
  EXPECT_THROW(FindFlatUpdate(Gpu())(SgdOp{}, views), c10::Error);
}

}  // namespace
}  // namespace ds::optim
