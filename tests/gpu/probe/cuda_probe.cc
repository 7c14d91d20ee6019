#include "tests/gpu/probe/cuda_probe.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>

namespace ds::testing {
namespace {

class LibTorchProbe : public CudaProbe {
 public:
  void RefuseWaits(bool refuses) const override {
    using c10::cuda::SyncDebugMode;
    c10::cuda::warning_state().set_sync_debug_mode(refuses ? SyncDebugMode::L_ERROR
                                                           : SyncDebugMode::L_DISABLED);
  }

  std::function<void()> Capture(const std::function<void()>& body) const override {
    const auto graph = std::make_shared<at::cuda::CUDAGraph>();
    // Backward passes issue from threads of their own.
    graph->capture_begin(/*pool=*/{0, 0}, cudaStreamCaptureModeRelaxed);
    body();
    graph->capture_end();
    return [graph] { graph->replay(); };
  }
};

}  // namespace
}  // namespace ds::testing

extern "C" __attribute__((visibility("default"))) const ds::testing::CudaProbe* ds_cuda_probe() {
  static const ds::testing::LibTorchProbe probe;
  return &probe;
}
