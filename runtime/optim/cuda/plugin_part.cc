// The optimizers' part of libdsrun_cuda.so: the ops of flat_ops.h as CUDA kernels.

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "runtime/optim/cuda/launch.h"

namespace ds::optim {
namespace {

const char* NameOf(const FlatOp& op) {
  return std::visit([](const auto& each) { return each.kName; }, op);
}

void Update(const FlatOp& op, const FlatViews& views) {
  const auto device = static_cast<c10::DeviceIndex>(views.device);
  const c10::cuda::CUDAGuard guard(device);
  FlatGrid grid{.stream = c10::cuda::getCurrentCUDAStream(device)};
  cudaError_t error =
      cudaDeviceGetAttribute(&grid.processors, cudaDevAttrMultiProcessorCount, views.device);
  if (error == cudaSuccess) error = LaunchFlatUpdate(op, views, grid);
  TORCH_CHECK(error == cudaSuccess, "the CUDA kernel \"", NameOf(op), "\" over ", views.count,
              " elements on GPU ", views.device, " was not launched: ", cudaGetErrorName(error),
              " (", cudaGetErrorString(error), ")");
}

}  // namespace
}  // namespace ds::optim

extern "C" __attribute__((visibility("default"))) ds::optim::FlatUpdate ds_cuda_flat_update(
    int version) {
  return version == ds::optim::kFlatUpdateVersion ? &ds::optim::Update : nullptr;
}
