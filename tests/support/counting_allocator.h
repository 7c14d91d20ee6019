#pragma once

// CountingAllocator: how many bytes LibTorch's CPU tensors really hold.
//
// It stands in front of LibTorch's own CPU allocator and counts what is out and the most that ever
// was, so that the memory ledger's claims can be checked. Each allocation carries a header of one
// cache line for that; the counts are of the bytes asked for, without it. Memory that LibTorch
// takes elsewhere (oneDNN scratch, thread stacks) is not seen. Threads: safe from any thread; two
// relaxed atomic operations per allocation.

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstdint>

namespace ds::testing {

class CountingAllocator : public c10::Allocator {
 public:
  // Makes a CountingAllocator LibTorch's CPU allocator, unless it is. It lives until the process
  // ends, as tensors may. Tensors made earlier are not counted.
  static CountingAllocator& Install();

  std::int64_t BytesOut() const { return bytes_.load(std::memory_order_relaxed); }
  std::int64_t PeakBytesOut() const { return peak_.load(std::memory_order_relaxed); }
  // Forgets the peak so far: from here on it is the most held since this call.
  void ResetPeak() { peak_.store(BytesOut(), std::memory_order_relaxed); }

  // From here on this thread is refused what is larger, as LibTorch's allocator refuses, until the
  // result is gone.
  class Refusal {
   public:
    explicit Refusal(std::size_t above);
    ~Refusal();
    Refusal(const Refusal&) = delete;
    Refusal& operator=(const Refusal&) = delete;
  };

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override;

 private:
  CountingAllocator() = default;
  static void Free(void* data);

  std::atomic<std::int64_t> bytes_{0};
  std::atomic<std::int64_t> peak_{0};
};

}  // namespace ds::testing
