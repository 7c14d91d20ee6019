#pragma once

// CudaPlugin: what the runtime needs from CUDA, implemented in libdsrun_cuda.so.
//
// dsrank links no CUDA library; it loads the plugin before its first tensor when a GPU is used, so
// that one build runs on machines with and without GPUs (see ../../README.md). This header is all
// that both sides share: the plugin links none of dsrun's libraries. Errors: c10::Error. Threads:
// as LibTorch's CUDA functions.

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstddef>
#include <string>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace ds::device {

class CudaPlugin {
 public:
  virtual ~CudaPlugin() = default;

  // Visible devices that work; 0 without a driver.
  virtual int DeviceCount() const = 0;
  // Makes the device current for the calling thread.
  virtual void SelectDevice(int index) const = 0;
  // Tells the device from all others of all hosts: "GPU-" and its UUID.
  virtual std::string DeviceId(int index) const = 0;
  // Locks memory of the host for copies by the device, all of whose contexts see it; false where
  // the driver does not let it. Unpin before the memory goes.
  virtual bool Pin(void* memory, std::size_t bytes) const = 0;
  virtual void Unpin(void* memory) const = 0;
  // "13.0" and "2.28.9", as compiled against.
  virtual std::string CudaVersion() const = 0;
  virtual std::string NcclVersion() const = 0;

  struct NcclOptions {
    int rank = 0;
    int size = 1;
    std::chrono::milliseconds timeout = std::chrono::minutes(30);
  };
  // NCCL over the calling thread's current device. Returns when all ranks are connected; `store`
  // is where they meet: rank 0 sets one key or several, and the others get them in the same order.
  virtual c10::intrusive_ptr<c10d::Backend> MakeNccl(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const NcclOptions& options) const = 0;
};

// Raised whenever the class above changes; a plugin of another version is refused.
inline constexpr int kCudaPluginVersion = 3;
// The plugin's one exported function: its object, which lives as long as the library, or null when
// the asked version is not its own.
inline constexpr char kCudaPluginEntry[] = "ds_cuda_plugin";
using CudaPluginEntry = const CudaPlugin* (*)(int version);

}  // namespace ds::device
