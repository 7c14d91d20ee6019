#include "runtime/device/backend/cuda/cuda_plugin.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdlib>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace ds::device {
namespace {

class LibTorchCuda : public CudaPlugin {
 public:
  int DeviceCount() const override { return c10::cuda::device_count(); }

  void SelectDevice(int index) const override {
    // Also initialises the caching allocator, which otherwise happens at the first tensor. Before
    // that, the allocator rejects queries of its statistics.
    at::globalContext().lazyInitDevice(c10::kCUDA);
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
  }

  std::string DeviceId(int index) const override {
    cudaDeviceProp properties{};
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
    std::string id = "GPU-";
    for (std::size_t i = 0; i < sizeof(properties.uuid.bytes); ++i) {
      if (i == 4 || i == 6 || i == 8 || i == 10) id += '-';
      constexpr char kDigits[] = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(properties.uuid.bytes[i]);
      id += kDigits[byte >> 4];
      id += kDigits[byte & 15];
    }
    return id;
  }

  bool Pin(void* memory, std::size_t bytes) const override {
    if (cudaHostRegister(memory, bytes, cudaHostRegisterPortable) == cudaSuccess) return true;
    static_cast<void>(cudaGetLastError());  // clears the error for later calls
    return false;
  }

  void Unpin(void* memory) const override { C10_CUDA_CHECK_WARN(cudaHostUnregister(memory)); }

  std::string CudaVersion() const override {
    return std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
  }

  std::string NcclVersion() const override {
    return std::to_string(NCCL_MAJOR) + "." + std::to_string(NCCL_MINOR) + "." +
           std::to_string(NCCL_PATCH);
  }

  c10::intrusive_ptr<c10d::Backend> MakeNccl(const c10::intrusive_ptr<c10d::Store>& store,
                                             const NcclOptions& options) const override {
    // A single rank creates the identifier, for any number of ranks.
    ::setenv("TORCH_NCCL_RANKS_PER_ROOT", std::to_string(options.size).c_str(), /*overwrite=*/1);
    auto nccl_options = c10d::ProcessGroupNCCL::Options::create();
    nccl_options->timeout = options.timeout;
    auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, options.rank, options.size,
                                                            std::move(nccl_options));
    const c10::Device device(c10::kCUDA, c10::cuda::current_device());
    nccl->setBoundDeviceId(device);
    nccl->eagerConnectSingleDevice(device);
    return nccl;
  }
};

}  // namespace
}  // namespace ds::device

extern "C" __attribute__((visibility("default"))) const ds::device::CudaPlugin* ds_cuda_plugin(
    int version) {
  static const ds::device::LibTorchCuda plugin;
  return version == ds::device::kCudaPluginVersion ? &plugin : nullptr;
}
