#pragma once

// CudaPlugin: the runtime's interface to CUDA, implemented in libdsrun_cuda.so.
//
// dsrank links no CUDA library. It loads the plugin before its first tensor when a GPU is used, so
// that one build runs on machines with and without GPUs (see ../../README.md). This header is the
// only shared code: the plugin links none of dsrun's libraries. Errors: c10::Error. Threads: as
// LibTorch's CUDA functions.

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

  // Returns the number of visible devices that work; 0 without a driver.
  virtual int DeviceCount() const = 0;
  // Makes the device current for the calling thread.
  virtual void SelectDevice(int index) const = 0;
  // Returns a globally unique id of the device: "GPU-" and its UUID.
  virtual std::string DeviceId(int index) const = 0;
  // Page-locks host memory for copies by the device, visible in all CUDA contexts. Returns false if
  // the driver refuses. Call Unpin before freeing the memory.
  virtual bool Pin(void* memory, std::size_t bytes) const = 0;
  virtual void Unpin(void* memory) const = 0;
  // Return the versions compiled against, such as "13.0" and "2.28.9".
  virtual std::string CudaVersion() const = 0;
  virtual std::string NcclVersion() const = 0;

  struct NcclOptions {
    int rank = 0;
    int size = 1;
    std::chrono::milliseconds timeout = std::chrono::minutes(30);
  };
  // Creates an NCCL backend on the calling thread's current device. Returns when all ranks are
  // connected. The ranks meet at `store`: rank 0 sets one or more keys, and the others read them in
  // the same order.
  virtual c10::intrusive_ptr<c10d::Backend> MakeNccl(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const NcclOptions& options) const = 0;
};

// Increase this on every change of the class above; a plugin of another version is rejected.
inline constexpr int kCudaPluginVersion = 3;
// The plugin's only exported function. Returns an object that lives as long as the library, or null
// if the requested version differs from its own.
inline constexpr char kCudaPluginEntry[] = "ds_cuda_plugin";
using CudaPluginEntry = const CudaPlugin* (*)(int version);

}  // namespace ds::device
