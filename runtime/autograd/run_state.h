#pragma once

// RunState: what a run of a part of the forward pass depends on beside its inputs and parameters,
// so that a second run computes its bits: autocast, and LibTorch's default generators of the CPU
// and of a device, as they are when the state is made. Threads: any.

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <optional>

#include "runtime/device/autocast_scope.h"

namespace ds::activation {

class RunState {
 public:
  explicit RunState(c10::Device device);

  c10::Device device() const { return device_; }
  // Runs it with that state, and records what gradients go back by. Behind it the generators are as
  // they were.
  template <typename Run>
  auto RunAgain(const Run& run) const {
    const c10::AutoGradMode recording(true);
    const precision::AutocastScope autocast(autocast_, device_);
    const ReplayOfDraws drawing{draws_, device_};
    return run();
  }

 private:
  // The states of both generators; that of the device is undefined where it is the CPU.
  struct Draws {
    at::Tensor cpu, other;
  };
  // While it lives the generators draw what they drew from there on; then they are as they were.
  class ReplayOfDraws {
   public:
    ReplayOfDraws(const Draws& from, c10::Device device);
    ~ReplayOfDraws();
    ReplayOfDraws(const ReplayOfDraws&) = delete;
    ReplayOfDraws& operator=(const ReplayOfDraws&) = delete;

   private:
    const c10::Device device_;
    const Draws before_;
  };
  static Draws ReadDraws(c10::Device device);
  static void WriteDraws(const Draws& draws, c10::Device device);

  c10::Device device_;
  std::optional<at::ScalarType> autocast_;  // none: there was none
  Draws draws_;
};

}  // namespace ds::activation
