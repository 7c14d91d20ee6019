#include "runtime/zero/storage/buffer_pool.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "runtime/base/check.h"
#include "runtime/zero/storage/storage_guard.h"

namespace ds::zero {

namespace {

constexpr char kShardedError[] =
    "this tensor shares memory with parameters that are sharded among the ranks, and this rank "
    "does not hold their values now: copy it (clone) while it holds them";

}  // namespace

BufferPool::~BufferPool() { FreeIdle(); }

void BufferPool::Book() {
  const std::int64_t more = sizes_.held_bytes() - booked_;
  booked_ += more;
  if (more > 0) {
    context_.ledger->Add(device::MemoryUse::kCommBuffers, context_.tier(), more);
  } else {
    context_.ledger->Remove(device::MemoryUse::kCommBuffers, context_.tier(), -more);
  }
}

void BufferPool::FreeIdle() {
  sizes_.FreeIdle();
  idle_.clear();
  Book();
}

at::DataPtr BufferPool::TakeBuffer(std::int64_t bytes) {
  const PoolSizes::Taking taking = sizes_.Take(bytes);
  if (taking.is_idle) {
    std::vector<at::DataPtr>& idle = idle_.at(bytes);
    at::DataPtr buffer = std::move(idle.back());
    idle.pop_back();
    return buffer;
  }
  for (const std::int64_t other : taking.freed) idle_.erase(other);
  Book();
  return c10::GetAllocator(context_.device.type())->allocate(static_cast<std::size_t>(bytes));
}

void BufferPool::ReturnBuffer(at::DataPtr buffer, std::int64_t bytes) {
  if (sizes_.Return(bytes)) {
    idle_[bytes].push_back(std::move(buffer));
    return;
  }
  buffer.clear();
  Book();
}

PooledTensor::PooledTensor(BufferPool& pool, std::int64_t count, c10::ScalarType dtype,
                           c10::Device device)
    : pool_(pool), tensor_(at::empty({0}, at::TensorOptions().dtype(dtype).device(device))) {
  tensor_.unsafeGetTensorImpl()->set_sizes_contiguous({count});
  bytes_ = count * static_cast<std::int64_t>(c10::elementSize(dtype));
  pool_.AddUser(bytes_);
}

void PooledTensor::Acquire() {
  if (present_) return;
  PutMemory(tensor_.storage(), pool_.TakeBuffer(bytes_), bytes_);
  present_ = true;
}

void PooledTensor::Release() {
  if (!present_) return;
  pool_.ReturnBuffer(TakeMemory(tensor_.storage(), kShardedError), bytes_);
  present_ = false;
}

}  // namespace ds::zero
