#include "runtime/zero/store.h"

#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>

#include <utility>

#include "runtime/base/check.h"

namespace ds::zero {

using device::LedgerEntry;
using device::MemoryTier;

struct Store::Bytes {
  ~Bytes() { DS_CHECK_MSG(!is_leased(), "a store ends before a lease of it"); }

  bool is_leased() const { return users.use_count() > 1; }

  const Context& context;
  at::Tensor tensor;
  LedgerEntry entry;
  at::Tensor on_host;                                    // the values, while they are away
  std::shared_ptr<int> users = std::make_shared<int>();  // each lease has a copy
};

Store::Store(const Context& context, const FlatSpec& spec) {
  at::Tensor tensor =
      at::empty({spec.count}, at::TensorOptions().dtype(spec.dtype).device(context.device));
  const auto size = static_cast<std::int64_t>(tensor.nbytes());
  bytes_.reset(new Bytes{.context = context,
                         .tensor = std::move(tensor),
                         .entry = LedgerEntry(context.ledger, spec.use, context.tier(), size)});
}

Store::Store() = default;
Store::~Store() = default;
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;

Lease Store::Acquire() {
  Prefetch();
  Lease lease(bytes_->tensor);
  lease.use_ = bytes_->users;
  return lease;
}

Lease Store::Acquire(const FlatRange& range) {
  Lease lease = Acquire();
  lease.tensor_ = lease.tensor_.narrow(0, range.start, range.count);
  return lease;
}

Lease Store::AcquireWhereItLies(const FlatRange& range) {
  const at::Tensor& lies = bytes_->on_host.defined() ? bytes_->on_host : bytes_->tensor;
  Lease lease(lies.narrow(0, range.start, range.count));
  lease.use_ = bytes_->users;
  return lease;
}

c10::ScalarType Store::dtype() const { return bytes_->tensor.scalar_type(); }

void Store::Prefetch() {
  if (!bytes_ || !bytes_->on_host.defined()) return;
  DS_CHECK_MSG(!bytes_->is_leased(), "bytes are brought back from under a lease");
  const Context& context = bytes_->context;
  const std::size_t size = bytes_->on_host.nbytes();
  c10::StorageImpl* storage = bytes_->tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::GetAllocator(context.device.type())->allocate(size));
  storage->set_nbytes(size);
  bytes_->tensor.copy_(bytes_->on_host);
  bytes_->on_host.reset();
  LedgerEntry& entry = bytes_->entry;
  entry = LedgerEntry(context.ledger, entry.use(), context.tier(), entry.bytes());
}

void Store::Release() {
  if (!bytes_ || bytes_->on_host.defined()) return;
  DS_CHECK_MSG(!bytes_->is_leased(), "bytes are taken away from under a lease");
  const Context& context = bytes_->context;
  const bool pin = !context.device.is_cpu();
  const auto options = at::TensorOptions().dtype(bytes_->tensor.dtype()).pinned_memory(pin);
  bytes_->on_host = at::empty(bytes_->tensor.sizes(), options);
  bytes_->on_host.copy_(bytes_->tensor);
  c10::StorageImpl* storage = bytes_->tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, context.device));
  storage->set_nbytes(0);
  LedgerEntry& entry = bytes_->entry;
  entry = LedgerEntry(context.ledger, entry.use(), pin ? MemoryTier::kPinned : MemoryTier::kHost,
                      entry.bytes());
}

}  // namespace ds::zero
