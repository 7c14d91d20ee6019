#pragma once

// CudaProbe: what tests on a GPU ask of CUDA beyond what the runtime does, implemented in
// libdsrun_cuda_probe.so, for tests link CUDA no more than the programs do. Errors: c10::Error.

#include <functional>
#include <memory>

namespace ds::testing {

class CudaProbe {
 public:
  virtual ~CudaProbe() = default;

  // Has LibTorch throw where a call would wait for the device, or no longer. It does not look at
  // waits for events: device::ReadNumbers' is one.
  virtual void RefuseWaits(bool refuses) const = 0;

  // Runs `body` on the current stream, which is not the default one, and keeps what it has issued
  // there as a graph instead of computing it. Returns what computes it, any number of times.
  virtual std::function<void()> Capture(const std::function<void()>& body) const = 0;
};

inline constexpr char kCudaProbeLibrary[] = "libdsrun_cuda_probe.so";
// The library's one function: its object.
inline constexpr char kCudaProbeEntry[] = "ds_cuda_probe";
using CudaProbeEntry = const CudaProbe* (*)();

}  // namespace ds::testing
