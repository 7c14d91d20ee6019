#pragma once

// MakeDeviceWorld stands for a world on NCCL, on a machine without a GPU: the ranks' own group, and
// those that are made of it, take what training moves on the device and nothing else. What ranks
// tell each other goes over the control group.

#include <memory>

#include "runtime/comm/communicator.h"
#include "tests/ranks/observed_backend.h"

namespace ds::tests {

// A tensor's device tells nothing here. What training moves are flat buffers and activations, in
// the dtype of parameters, gradients or autocast. Integers, doubles and a few elements are numbers,
// verdicts and texts, which NCCL would refuse for being on the CPU.
inline void RefuseWhatIsNotTraining(c10d::OpType /*op*/, const at::Tensor& tensor) {
  constexpr std::int64_t kFewElements = 8;
  const at::ScalarType dtype = tensor.scalar_type();
  TORCH_CHECK(at::isFloatingType(dtype) && dtype != at::kDouble && tensor.numel() > kFewElements,
              "Tensors must be CUDA and dense, not ", tensor.numel(), " of ", tensor.dtype());
}

// Over the ranks of `host`, which outlives it.
inline std::unique_ptr<comm::Communicator> MakeDeviceWorld(comm::Communicator& host) {
  const auto observe = [](comm::Communicator& control) -> c10::intrusive_ptr<c10d::Backend> {
    return c10::make_intrusive<ObservedBackend>(control.backend(), RefuseWhatIsNotTraining);
  };
  return std::make_unique<comm::Communicator>(
      observe(host), c10::kCPU, std::make_unique<comm::Communicator>(host.backend()), observe);
}

}  // namespace ds::tests
