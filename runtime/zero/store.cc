#include "runtime/zero/store.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace ds::zero {

using device::LedgerEntry;
using device::MemoryTier;

namespace {

// Elements of a store in a file that are set at once.
constexpr std::int64_t kZeroedAtOnce = std::int64_t{1} << 22;

void ThrowUnlessOk(const Status& status) { TORCH_CHECK(status.ok(), status.message()); }

template <typename T>
T ValueOrThrow(StatusOr<T> value) {
  ThrowUnlessOk(value.ok() ? OkStatus() : value.status());
  return *std::move(value);
}

}  // namespace

struct Store::Bytes {
  ~Bytes() { DS_CHECK_MSG(!is_leased(), "a store ends before a lease of it"); }

  bool is_leased() const { return users.use_count() > 1; }
  std::int64_t item_size() const { return static_cast<std::int64_t>(c10::elementSize(spec.dtype)); }
  offload::ByteRange BytesOf(const FlatRange& range) const {
    return {range.start * item_size(), range.count * item_size()};
  }
  Lease Lend(at::Tensor lent) {
    Lease lease(std::move(lent));
    lease.use_ = users;
    return lease;
  }
  Lease LendFromFile(const FlatRange& range, Access access);
  // The same on the device.
  Lease BringFromFile(const FlatRange& range, Access access);

  const Context& context;
  const FlatSpec spec;
  at::Tensor tensor;  // undefined where the bytes rest in a file
  LedgerEntry entry;
  std::unique_ptr<offload::Windows> file;                // they do, if there is one
  at::Tensor on_host;                                    // the values, while they are away
  std::shared_ptr<int> users = std::make_shared<int>();  // each lease has a copy
};

Lease Store::Bytes::LendFromFile(const FlatRange& range, Access access) {
  if (range.count == 0) return Lease(at::empty({0}, at::TensorOptions().dtype(spec.dtype)));
  auto use =
      std::make_shared<offload::WindowUse>(ValueOrThrow(file->Acquire(BytesOf(range), access)));
  Lease lease(at::from_blob(use->bytes().data(), {range.count}, spec.dtype));
  lease.use_ = std::move(use);
  return lease;
}

namespace {

// Is what a lease has of a range in a file, where the device does not see the host's buffer.
struct DeviceCopy {
  DeviceCopy(Lease of, const Context& context, const FlatSpec& spec, Access access)
      : host(std::move(of)),
        booked(context.ledger, spec.use, context.tier(),
               static_cast<std::int64_t>(host.tensor().nbytes())),
        here(at::empty(host.tensor().sizes(), host.tensor().options().device(context.device))),
        writes(access != Access::kRead) {
    if (access != Access::kOverwrite) here.copy_(host.tensor());
  }
  ~DeviceCopy() {
    if (!writes) return;
    try {
      host.tensor().copy_(here);
    } catch (const c10::Error& error) {  // nobody could go on from here
      DS_CHECK_MSG(false, error.what_without_backtrace());
    }
  }
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;

  const Lease host;
  const LedgerEntry booked;
  const at::Tensor here;
  const bool writes;
};

}  // namespace

Lease Store::Bytes::BringFromFile(const FlatRange& range, Access access) {
  if (!context.tiers.copies_from_files) return LendFromFile(range, access);
  auto copy =
      std::make_shared<const DeviceCopy>(LendFromFile(range, access), context, spec, access);
  Lease lease(copy->here);
  lease.use_ = std::move(copy);
  return lease;
}

Store::Store(const Context& context, const FlatSpec& spec) {
  const std::int64_t size = spec.count * static_cast<std::int64_t>(c10::elementSize(spec.dtype));
  const Tiers& tiers = context.tiers;
  FlatSpec kept = spec;
  if (spec.rest == Rest::kFile && size < std::max<std::int64_t>(1, tiers.smallest_bytes)) {
    kept.rest = Rest::kHere;
  }
  const bool in_file = kept.rest == Rest::kFile;
  LedgerEntry entry(context.ledger, spec.use, in_file ? MemoryTier::kFile : context.tier(), size);
  std::unique_ptr<offload::Windows> file;
  at::Tensor tensor;
  if (in_file) {
    const bool is_parameter = spec.use == device::MemoryUse::kParameters;
    offload::FileTier* const files = is_parameter ? tiers.parameter_files : tiers.optimizer_files;
    DS_CHECK(files != nullptr && (context.device.is_cpu() || tiers.copies_from_files));
    file = ValueOrThrow(offload::Windows::Create(*files, size));
  } else {
    tensor = at::empty({spec.count}, at::TensorOptions().dtype(spec.dtype).device(context.device));
  }
  bytes_.reset(new Bytes{.context = context,
                         .spec = kept,
                         .tensor = std::move(tensor),
                         .entry = std::move(entry),
                         .file = std::move(file)});
}

Store::Store() = default;
Store::~Store() = default;
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;

c10::ScalarType Store::dtype() const { return bytes_->spec.dtype; }
FlatRange Store::whole() const { return {0, bytes_->spec.count}; }
bool Store::rests_away() const { return bytes_ && bytes_->spec.rest != Rest::kHere; }
bool Store::rests_in_file() const { return bytes_ && bytes_->file != nullptr; }

Lease Store::Acquire(const FlatRange& range, Access access) {
  if (bytes_->file) return bytes_->BringFromFile(range, access);
  Prefetch();
  return bytes_->Lend(bytes_->tensor.narrow(0, range.start, range.count));
}

Lease Store::AcquireWhereItLies(const FlatRange& range, Access access) {
  if (bytes_->file) return bytes_->LendFromFile(range, access);
  const at::Tensor& lies = bytes_->on_host.defined() ? bytes_->on_host : bytes_->tensor;
  return bytes_->Lend(lies.narrow(0, range.start, range.count));
}

void Store::Zero() {
  if (bytes_->file && bytes_->file->are_zeros()) return;
  const std::int64_t count = bytes_->spec.count;
  const std::int64_t at_once = bytes_->file ? kZeroedAtOnce : count;
  for (std::int64_t start = 0; start < count; start += at_once) {
    const FlatRange range{start, std::min(at_once, count - start)};
    Acquire(range, Access::kOverwrite).tensor().zero_();
    if (bytes_->file) Stow(range);
  }
}

void Store::Prefetch() {
  if (bytes_ && bytes_->file) Prefetch(whole());
  if (!bytes_ || !bytes_->on_host.defined()) return;
  DS_CHECK_MSG(!bytes_->is_leased(), "bytes are brought back from under a lease");
  const Context& context = bytes_->context;
  const std::size_t size = bytes_->on_host.nbytes();
  LedgerEntry& entry = bytes_->entry;
  entry = LedgerEntry(context.ledger, entry.use(), context.tier(), entry.bytes());
  c10::StorageImpl* storage = bytes_->tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::GetAllocator(context.device.type())->allocate(size));
  storage->set_nbytes(size);
  bytes_->tensor.copy_(bytes_->on_host);
  bytes_->on_host.reset();
}

void Store::Prefetch(const FlatRange& range) {
  if (!bytes_->file) return Prefetch();
  if (range.count > 0) ThrowUnlessOk(bytes_->file->Prefetch(bytes_->BytesOf(range)));
}

void Store::Stow() {
  if (rests_away()) Release();
}

void Store::Stow(const FlatRange& range) {
  if (!bytes_ || !bytes_->file) return Stow();
  if (range.count > 0) ThrowUnlessOk(bytes_->file->Release(bytes_->BytesOf(range)));
}

void Store::Settle() {
  if (bytes_ && bytes_->file) ThrowUnlessOk(bytes_->file->Settle());
}

void Store::Release() {
  if (bytes_ && bytes_->file) return Stow(whole());
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
