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

BufferPool::~BufferPool() {
  for (auto& [bytes, size] : sizes_) {
    for (std::size_t i = 0; i < size.idle.size(); ++i) {
      context_.ledger->Remove(device::MemoryUse::kCommBuffers, context_.tier(), bytes);
    }
  }
}

at::DataPtr BufferPool::Take(std::int64_t bytes) {
  std::vector<at::DataPtr>& idle = sizes_[bytes].idle;
  if (!idle.empty()) {
    at::DataPtr buffer = std::move(idle.back());
    idle.pop_back();
    return buffer;
  }
  at::DataPtr buffer =
      c10::GetAllocator(context_.device.type())->allocate(static_cast<std::size_t>(bytes));
  context_.ledger->Add(device::MemoryUse::kCommBuffers, context_.tier(), bytes);
  return buffer;
}

void BufferPool::Give(at::DataPtr buffer, std::int64_t bytes) {
  Size& size = sizes_[bytes];
  if (size.users > kUsersPerUnit && size.idle.size() < kMaxIdle) {
    size.idle.push_back(std::move(buffer));
    return;
  }
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
  storage->set_data_ptr_noswap(pool_.Take(bytes_));
  storage->set_nbytes(static_cast<std::size_t>(bytes_));
  present_ = true;
}

void PooledTensor::Release() {
  if (!present_) return;
  c10::StorageImpl* storage = tensor_.storage().unsafeGetStorageImpl();
  at::DataPtr buffer = storage->set_data_ptr(at::DataPtr(nullptr, tensor_.device()));
  storage->set_nbytes(0);
  pool_.Give(std::move(buffer), bytes_);
  present_ = false;
}

}  // namespace ds::zero
