#pragma once

// ActivationMeter: measures what a rank's tensors hold beyond what the ledger knows of. Those are
// activations, and what the backward pass makes on its way: nobody books them, for autograd owns
// them. What LibTorch's allocator of the rank's device has out less what is booked in that tier is
// entered in the ledger under kActivations at marks: the ends of forward passes, backward passes
// and steps.
//
// On the CPU it needs a CountingAllocator, and the peak is the most at any moment. A GPU's
// allocator tells its own peak only: there that of activations between two marks is at least so
// much.
//
// Threads: one at a time. One meter in a process, of the only rank there.

#include <c10/core/Device.h>

#include <cstdint>

#include "runtime/device/memory_ledger.h"

namespace ds::device {

class CountingAllocator;

struct HeldBytes {
  std::int64_t bytes = 0;  // now
  std::int64_t peak = 0;   // the most since some moment
};

class ActivationMeter {
 public:
  // Requires an allocator that counts (Counts). `ledger` is borrowed.
  ActivationMeter(MemoryLedger& ledger, c10::Device device);
  ~ActivationMeter();
  ActivationMeter(const ActivationMeter&) = delete;
  ActivationMeter& operator=(const ActivationMeter&) = delete;

  // Tells whether the device's allocator counts what is out.
  static bool Counts(c10::Device device);

  // Since the mark before, or the meter's beginning.
  struct Reading {
    HeldBytes allocated;    // all tensors
    HeldBytes activations;  // what of them is not booked
  };
  // Enters what it reads in the ledger.
  Reading Mark();

  // All tensors, now and the most since the meter's beginning. As of the latest mark.
  HeldBytes allocated() const { return allocated_; }

 private:
  Reading Read() const;

  MemoryLedger& ledger_;
  const c10::Device device_;
  CountingAllocator* counting_ = nullptr;  // on the CPU
  std::int64_t booked_ = 0;                // at the latest mark
  HeldBytes allocated_;
};

}  // namespace ds::device
