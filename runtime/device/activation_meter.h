#pragma once

// ActivationMeter: measures the memory of a rank's tensors that the ledger has not booked. These
// are activations and temporaries of the backward pass; autograd owns them, so no code books them.
// The value is the number of bytes allocated by LibTorch's allocator of the rank's device minus the
// bytes booked in that tier. It is entered in the ledger under kActivations at marks: after forward
// passes, backward passes and steps.
//
// On the CPU the meter needs a CountingAllocator, and the peak is exact. A GPU's allocator reports
// only its own peak, so there the activations' peak between two marks is a lower bound.
//
// Not thread-safe. Create at most one meter per process; the process must run only one rank.

#include <c10/core/Device.h>

#include <cstdint>

#include "runtime/device/memory_ledger.h"

namespace ds::device {

class CountingAllocator;

struct HeldBytes {
  std::int64_t bytes = 0;  // now
  std::int64_t peak = 0;   // maximum since some moment
};

class ActivationMeter {
 public:
  // Requires an allocator that counts (Counts). `ledger` must outlive this object.
  ActivationMeter(MemoryLedger& ledger, c10::Device device);
  ~ActivationMeter();
  ActivationMeter(const ActivationMeter&) = delete;
  ActivationMeter& operator=(const ActivationMeter&) = delete;

  // Returns whether the device's allocator counts allocated bytes.
  static bool Counts(c10::Device device);

  // Values since the previous mark, or since the meter was created.
  struct Reading {
    HeldBytes allocated;    // all tensors
    HeldBytes activations;  // the part that is not booked
  };
  // Measures, and enters the result in the ledger.
  Reading Mark();

  // Returns the bytes of all tensors at the latest mark, and their peak since the meter was
  // created.
  HeldBytes allocated() const { return allocated_; }

 private:
  Reading Read() const;

  MemoryLedger& ledger_;
  const c10::Device device_;
  CountingAllocator* counting_ = nullptr;  // null unless on the CPU
  std::int64_t booked_ = 0;                // at the latest mark
  HeldBytes allocated_;
};

}  // namespace ds::device
