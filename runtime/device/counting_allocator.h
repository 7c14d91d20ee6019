#pragma once

// CountingAllocator: how many bytes LibTorch's CPU tensors really hold.
//
// It stands in front of LibTorch's own CPU allocator and counts what is out and the most that ever
// was, so that the memory ledger's claims can be checked, and what it does not know (activations)
// measured. Each allocation carries a header of one cache line for that; the counts are of the
// bytes asked for, without it. Memory that LibTorch takes elsewhere (oneDNN scratch, thread stacks)
// is not seen. Threads: safe from any thread; a few relaxed atomic operations per allocation.

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstdint>

namespace ds::device {

class MemoryLedger;

class CountingAllocator : public c10::Allocator {
 public:
  // Makes a CountingAllocator LibTorch's CPU allocator, unless it is. It lives until the process
  // ends, as tensors may. Tensors made earlier are not counted.
  static CountingAllocator& Install();
  // The one that has been installed, or null.
  static CountingAllocator* Find();

  std::int64_t BytesOut() const { return bytes_.load(std::memory_order_relaxed); }
  std::int64_t PeakBytesOut() const { return peak_.load(std::memory_order_relaxed); }
  // The most that was out beyond what the ledger of CompareWith has booked as host memory, whose
  // owners book before they allocate; 0 without one.
  std::int64_t PeakBeyondLedger() const { return peak_beyond_.load(std::memory_order_relaxed); }
  // Forgets the peaks so far: from here on they are the most held since this call.
  void ResetPeak();

  // The ledger is borrowed until another one, or null, is given.
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
