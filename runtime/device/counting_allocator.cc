#include "runtime/device/counting_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <functional>

#include "runtime/device/memory_ledger.h"

namespace ds::device {
namespace {

// Header: precedes the tensor's bytes. Its size is LibTorch's alignment, so the bytes stay aligned.
// Malloc's own size would include padding, and a table would need a lock.
struct alignas(64) Header {
  CountingAllocator* owner;
  std::int64_t bytes;
};

void Raise(std::atomic<std::int64_t>* peak, std::int64_t value) {
  std::int64_t known = peak->load(std::memory_order_relaxed);
  while (known < value && !peak->compare_exchange_weak(known, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

CountingAllocator& CountingAllocator::Install() {
  static CountingAllocator& installed = [] {
    auto* allocator = new CountingAllocator();  // never deleted: tensors may outlive every owner
    c10::SetCPUAllocator(allocator, /*priority=*/1);
    return std::ref(*allocator);
  }();
  return installed;
}

CountingAllocator* CountingAllocator::Find() {
  return dynamic_cast<CountingAllocator*>(c10::GetCPUAllocator());
}

std::int64_t CountingAllocator::CountBeyondLedger(std::int64_t out) const {
  const MemoryLedger* ledger = ledger_.load(std::memory_order_relaxed);
  return ledger == nullptr ? 0 : out - ledger->BookedBytes(MemoryTier::kHost);
}

void CountingAllocator::ResetPeak() {
  peak_.store(BytesOut(), std::memory_order_relaxed);
  peak_beyond_.store(CountBeyondLedger(BytesOut()), std::memory_order_relaxed);
}

c10::DataPtr CountingAllocator::allocate(std::size_t bytes) {
  if (bytes == 0) return {nullptr, nullptr, &Free, c10::Device(c10::kCPU)};
  auto* header = static_cast<Header*>(c10::alloc_cpu(sizeof(Header) + bytes));
  header->owner = this;
  header->bytes = static_cast<std::int64_t>(bytes);
  const std::int64_t out =
      bytes_.fetch_add(header->bytes, std::memory_order_relaxed) + header->bytes;
  Raise(&peak_, out);
  Raise(&peak_beyond_, CountBeyondLedger(out));
  void* data = header + 1;
  return {data, data, &Free, c10::Device(c10::kCPU)};
}

void CountingAllocator::Free(void* data) {
  if (data == nullptr) return;
  Header* header = static_cast<Header*>(data) - 1;
  header->owner->bytes_.fetch_sub(header->bytes, std::memory_order_relaxed);
  c10::free_cpu(header);
}

void CountingAllocator::copy_data(void* to, const void* from, std::size_t bytes) const {
  default_copy_data(to, from, bytes);
}

}  // namespace ds::device
