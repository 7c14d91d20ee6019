#include "runtime/zero/buffer_pool.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "runtime/base/check.h"

namespace ds::zero {
namespace {

// More than this many buffers of one size are never needed at once again.
constexpr std::size_t kMaxIdle = 2;

// Its parameters and its gradients.
constexpr int kUsersPerUnit = 2;

}  // namespace

bool BufferPool::Size::shared_by_units() const { return users > kUsersPerUnit; }

BufferPool::~BufferPool() { FreeIdle(); }

void BufferPool::FreeIdle() {
  for (auto& [bytes, size] : sizes_) FreeIdle(size, bytes);
}

void BufferPool::FreeIdle(Size& size, std::int64_t bytes) {
  const auto count = static_cast<std::int64_t>(size.idle.size());
  context_.ledger->Remove(device::MemoryUse::kCommBuffers, context_.tier(), count * bytes);
  size.idle.clear();
}

at::DataPtr BufferPool::TakeBuffer(std::int64_t bytes) {
  std::vector<at::DataPtr>& idle = sizes_[bytes].idle;
  if (!idle.empty()) {
    at::DataPtr buffer = std::move(idle.back());
    idle.pop_back();
    return buffer;
  }
  for (auto& [other_bytes, other] : sizes_) {
    if (!other.shared_by_units()) FreeIdle(other, other_bytes);
  }
  at::DataPtr buffer =
      c10::GetAllocator(context_.device.type())->allocate(static_cast<std::size_t>(bytes));
  context_.ledger->Add(device::MemoryUse::kCommBuffers, context_.tier(), bytes);
  return buffer;
}

void BufferPool::ReturnBuffer(at::DataPtr buffer, std::int64_t bytes) {
  Size& size = sizes_[bytes];
  if (size.idle.size() < (size.shared_by_units() ? kMaxIdle : 1)) {
    size.idle.push_back(std::move(buffer));
    return;
  }
  buffer.clear();
  context_.ledger->Remove(device::MemoryUse::kCommBuffers, context_.tier(), bytes);
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
  c10::StorageImpl* storage = tensor_.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(pool_.TakeBuffer(bytes_));
  storage->set_nbytes(static_cast<std::size_t>(bytes_));
  present_ = true;
}

void PooledTensor::Release() {
  if (!present_) return;
  c10::StorageImpl* storage = tensor_.storage().unsafeGetStorageImpl();
  at::DataPtr buffer = storage->set_data_ptr(at::DataPtr(nullptr, tensor_.device()));
  storage->set_nbytes(0);
  pool_.ReturnBuffer(std::move(buffer), bytes_);
  present_ = false;
}

}  // namespace ds::zero
