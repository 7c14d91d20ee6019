#pragma once

// CountingAllocator: counts the bytes that LibTorch's CPU tensors hold.
//
// It wraps LibTorch's CPU allocator and counts the allocated bytes and their peak. The counts
// verify the memory ledger and measure the bytes that it does not know (activations). Each
// allocation has a header of one cache line; the counts cover the requested bytes without it.
// Memory that LibTorch allocates elsewhere (oneDNN scratch, thread stacks) is not counted.
// Thread-safe; each allocation costs a few relaxed atomic operations.

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstdint>

namespace ds::device {

class MemoryLedger;

class CountingAllocator : public c10::Allocator {
 public:
  // Installs a CountingAllocator as LibTorch's CPU allocator, unless it is installed already. It
  // lives until the process ends, because tensors may. Tensors made earlier are not counted.
  static CountingAllocator& Install();
  // Returns the installed allocator, or null.
  static CountingAllocator* Find();

  std::int64_t BytesOut() const { return bytes_.load(std::memory_order_relaxed); }
  std::int64_t PeakBytesOut() const { return peak_.load(std::memory_order_relaxed); }
  // Returns the peak of the bytes beyond the host memory booked in the ledger of CompareWith; 0
  // without a ledger. Code books memory before it allocates.
  std::int64_t PeakBeyondLedger() const { return peak_beyond_.load(std::memory_order_relaxed); }
  // Restarts the peaks at the current values.
  void ResetPeak();

  // Sets the ledger to compare with. It must stay valid until the next call; null removes it.
  void CompareWith(const MemoryLedger* ledger) { ledger_.store(ledger); }

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override;

 private:
  CountingAllocator() = default;
  static void Free(void* data);
  std::int64_t CountBeyondLedger(std::int64_t out) const;

  std::atomic<std::int64_t> bytes_{0};
  std::atomic<std::int64_t> peak_{0};
  std::atomic<std::int64_t> peak_beyond_{0};
  std::atomic<const MemoryLedger*> ledger_{nullptr};
};

}  // namespace ds::device
