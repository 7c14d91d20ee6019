#include "runtime/optim/cuda/launch.h"

#include "runtime/optim/kernels/flat_loop.h"

namespace ds::optim {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kBlocksPerProcessor = 8;  // 2048 threads: the maximum per processor

template <typename Op>
__global__ void __launch_bounds__(kThreads)
    UpdateKernel(const Op op, const FlatViews views, const FlatPlan plan) {
  UpdateStrided(op, views, plan, std::int64_t{blockIdx.x} * kThreads + threadIdx.x,
                std::int64_t{gridDim.x} * kThreads);
}

template <typename Op>
cudaError_t Launch(const Op& op, const FlatViews& views, const FlatGrid& grid) {
  if (views.count == 0) return cudaSuccess;
  const FlatPlan plan = PlanOf<Op>(views);
  const std::int64_t blocks = std::min((ThreadsFor(plan, views.count) + kThreads - 1) / kThreads,
                                       kBlocksPerProcessor * grid.processors);
  UpdateKernel<<<static_cast<unsigned>(blocks), kThreads, 0, grid.stream>>>(op, views, plan);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchFlatUpdate(const FlatOp& op, const FlatViews& views, const FlatGrid& grid) {
  return std::visit([&](const auto& each) { return Launch(each, views, grid); }, op);
}

}  // namespace ds::optim
