#pragma once

// RankDevice: the device that a rank computes on, decided once at its start.
//
// OpenRankDevice loads the CUDA plugin when a GPU is used. LibTorch caches what it finds at its
// first operation, so this comes before the first tensor. Threads: call from the main thread,
// before others use LibTorch.

#include <c10/core/Device.h>

#include <string_view>

#include "runtime/base/status.h"
#include "runtime/device/backend/cuda/cuda_plugin.h"

namespace ds::device {

enum class DeviceChoice {
  kAuto,  // a GPU when this machine has one that works, else the CPU
  kCpu,
  kCuda,  // a GPU, or an error
};

// "auto", "cpu" or "cuda"; anything else is kInvalidArgument.
StatusOr<DeviceChoice> DeviceChoiceFromName(std::string_view name);

struct RankDevice {
  c10::Device device = c10::Device(c10::kCPU);
  const CudaPlugin* cuda = nullptr;  // set when `device` is a GPU; lives until the process ends
};

// `local_rank` picks the GPU among the visible ones; with one visible device per rank it is that
// one.
StatusOr<RankDevice> OpenRankDevice(DeviceChoice choice, int local_rank);

// Waits for all that was issued to the device; on the CPU nothing is.
void Synchronize(c10::Device device);

// Loads libdsrun_cuda.so: beside this program, in ../lib, or from the library path.
StatusOr<const CudaPlugin*> LoadCudaPlugin();

// Finds a function that a higher layer has put into the plugin, by the name it is exported under.
// Loads the plugin where that has not been done.
StatusOr<void*> FindInCudaPlugin(const char* name);

}  // namespace ds::device
