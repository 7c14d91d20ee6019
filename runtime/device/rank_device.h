#pragma once

// RankDevice: the device on which a rank computes, chosen once at its start.
//
// OpenRankDevice loads the CUDA plugin when a GPU is used. Call it before the first tensor, because
// LibTorch caches the available devices at its first operation. Call it from the main thread,
// before other threads use LibTorch.

#include <c10/core/Device.h>

#include <string_view>

#include "runtime/base/status.h"
#include "runtime/device/backend/cuda/cuda_plugin.h"

namespace ds::device {

enum class DeviceChoice {
  kAuto,  // a GPU if this machine has a working one, else the CPU
  kCpu,
  kCuda,  // a GPU, or an error
};

// Parses "auto", "cpu" or "cuda"; returns kInvalidArgument for other names.
StatusOr<DeviceChoice> DeviceChoiceFromName(std::string_view name);

struct RankDevice {
  c10::Device device = c10::Device(c10::kCPU);
  const CudaPlugin* cuda = nullptr;  // set when `device` is a GPU; lives until the process ends
};

// Opens the device. `local_rank` selects the GPU among the visible devices; a single visible device
// is used by any rank.
StatusOr<RankDevice> OpenRankDevice(DeviceChoice choice, int local_rank);

// Blocks until all work issued to the device is finished. Does nothing on the CPU.
void Synchronize(c10::Device device);

// Loads libdsrun_cuda.so from this program's folder, from ../lib, or from the library path.
StatusOr<const CudaPlugin*> LoadCudaPlugin();

// Returns a function that a higher layer has compiled into the plugin, by its exported name. Loads
// the plugin if necessary.
StatusOr<void*> FindInCudaPlugin(const char* name);

}  // namespace ds::device
