#pragma once

// RunState captures the state that a run depends on in addition to inputs and parameters, so that a
// second run computes the same bits: autocast, and LibTorch's default generators of the CPU and of
// a device at construction. Thread-safe.

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <optional>

#include "runtime/device/autocast_scope.h"

namespace ds::activation {

class RunState {
 public:
  explicit RunState(c10::Device device);

  c10::Device device() const { return device_; }
  // Calls `run` with the captured state and with gradient recording. Restores the generators
  // afterwards.
  template <typename Run>
  auto RunAgain(const Run& run) const {
    const c10::AutoGradMode recording(true);
    const precision::AutocastScope autocast(autocast_, device_);
    const ReplayOfDraws drawing{draws_, device_};
    return run();
  }

 private:
  // The states of both generators; `other` is undefined if the device is the CPU.
  struct Draws {
    at::Tensor cpu, other;
  };
  // While it lives, the generators repeat the draws from that state. The destructor restores them.
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
  std::optional<at::ScalarType> autocast_;  // nullopt: no autocast
  Draws draws_;
};

}  // namespace ds::activation
