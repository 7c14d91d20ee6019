#include "runtime/zero/storage/store.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/zero/storage/host_windows.h"
#include "runtime/zero/storage/storage_guard.h"

namespace ds::zero {

using device::LedgerEntry;
using device::MemoryTier;

namespace {

// Number of elements that Zero sets at once in a file, to limit the memory that it needs.
constexpr std::int64_t kZeroedAtOnce = std::int64_t{1} << 22;

constexpr char kOffloadedError[] =
    "this tensor shares memory with state that offload_states has moved to host memory: call "
    "reload_states before it is read";

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
  static Lease LendOf(HostWindows::BorrowedRange lent) {
    Lease lease(std::move(lent.values));
    lease.use_ = std::move(lent.use);
    return lease;
  }
  Lease LendFromFile(const FlatRange& range, Access access);
  // Lends the file's range on the device, as a copy if the device cannot access the host's buffer.
  Lease BringFromFile(const FlatRange& range, Access access);

  const Context& context;
  FlatSpec spec;
  // Used if the bytes are stored on the computing device.
  at::Tensor tensor;
  LedgerEntry entry;
  std::unique_ptr<HostWindows> host;                     // used for StorageTier::kHost
  std::unique_ptr<offload::Windows> file;                // used for StorageTier::kFile
  at::Tensor on_host;                                    // the values after Release
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

// A lease of a file's range for a device that cannot access the host's buffer. Copies are
// synchronous: once the lease ends, the host's buffer is written to the drive or reused, and a
// drive is slower than the copies.
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
    } catch (const c10::Error& error) {  // recovery is impossible
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

Store::Store(const Context& context, const FlatSpec& spec)
    : bytes_(new Bytes{.context = context, .spec = spec}) {
  const std::int64_t size = spec.count * bytes_->item_size();
  const Tiers& tiers = context.tiers;
  StorageTier& storage_tier = bytes_->spec.storage_tier;
  if (storage_tier == StorageTier::kFile &&
      size < std::max<std::int64_t>(1, tiers.smallest_bytes)) {
    storage_tier = StorageTier::kHere;
  }
  if (storage_tier == StorageTier::kHost) {
    bytes_->host = std::make_unique<HostWindows>(context, spec.count, spec.dtype, spec.use);
    return;
  }
  const bool in_file = storage_tier == StorageTier::kFile;
  bytes_->entry =
      LedgerEntry(context.ledger, spec.use, in_file ? MemoryTier::kFile : context.tier(), size);
  if (in_file) {
    const bool is_parameter = spec.use == device::MemoryUse::kParameters;
    offload::FileTier* const files = is_parameter ? tiers.parameter_files : tiers.optimizer_files;
    DS_CHECK(files != nullptr && (context.device.is_cpu() || tiers.copies_from_files));
    bytes_->file = ValueOrThrow(offload::Windows::Create(*files, size));
  } else {
    bytes_->tensor =
        at::empty({spec.count}, at::TensorOptions().dtype(spec.dtype).device(context.device));
  }
}

Store::Store() = default;
Store::~Store() = default;
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;

c10::ScalarType Store::dtype() const { return bytes_->spec.dtype; }
FlatRange Store::full_range() const { return {0, bytes_->spec.count}; }
bool Store::is_offloaded() const {
  return bytes_ && bytes_->spec.storage_tier != StorageTier::kHere;
}
bool Store::is_in_file() const { return bytes_ && bytes_->file != nullptr; }

Lease Store::Acquire(const FlatRange& range, Access access) {
  if (bytes_->file) return bytes_->BringFromFile(range, access);
  if (bytes_->host) return Bytes::LendOf(bytes_->host->Acquire(range, access));
  Prefetch();
  return bytes_->Lend(bytes_->tensor.narrow(0, range.start, range.count));
}

Lease Store::AcquireOnOwnTier(const FlatRange& range, Access access) {
  if (bytes_->file) return bytes_->LendFromFile(range, access);
  if (bytes_->host) return Bytes::LendOf(bytes_->host->AcquireOnHost(range, access));
  const at::Tensor& lies = bytes_->on_host.defined() ? bytes_->on_host : bytes_->tensor;
  return bytes_->Lend(lies.narrow(0, range.start, range.count));
}

void Store::Zero() {
  if (bytes_->file && bytes_->file->are_zeros()) return;
  if (bytes_->host) return bytes_->host->Zero();
  const std::int64_t count = bytes_->spec.count;
  const std::int64_t at_once = bytes_->file ? kZeroedAtOnce : count;
  for (std::int64_t start = 0; start < count; start += at_once) {
    const FlatRange range{start, std::min(at_once, count - start)};
    Acquire(range, Access::kOverwrite).tensor().zero_();
    if (bytes_->file) Offload(range);
  }
}

void Store::Prefetch() {
  if (is_offloaded()) return Prefetch(full_range());
  if (!bytes_ || !bytes_->on_host.defined()) return;
  DS_CHECK_MSG(!bytes_->is_leased(), "bytes are brought back from under a lease");
  const Context& context = bytes_->context;
  const std::size_t size = bytes_->on_host.nbytes();
  LedgerEntry& entry = bytes_->entry;
  entry = LedgerEntry(context.ledger, entry.use(), context.tier(), entry.bytes());
  PutMemory(bytes_->tensor.storage(), c10::GetAllocator(context.device.type())->allocate(size),
            static_cast<std::int64_t>(size));
  bytes_->tensor.copy_(bytes_->on_host);
  bytes_->on_host.reset();
}

void Store::Prefetch(const FlatRange& range) {
  if (bytes_->host) return bytes_->host->Prefetch(range);
  if (!bytes_->file) return Prefetch();
  if (range.count > 0) ThrowUnlessOk(bytes_->file->Prefetch(bytes_->BytesOf(range)));
}

void Store::Offload() {
  if (is_offloaded()) Offload(full_range());
}

void Store::Offload(const FlatRange& range) {
  if (!is_offloaded()) return;
  if (bytes_->host) return bytes_->host->Offload(range);
  if (range.count > 0) ThrowUnlessOk(bytes_->file->Release(bytes_->BytesOf(range)));
}

void Store::Settle() {
  if (bytes_ && bytes_->file) ThrowUnlessOk(bytes_->file->Settle());
}

void Store::Release() {
  if (is_offloaded()) return Offload(full_range());
  if (!bytes_ || bytes_->on_host.defined()) return;
  DS_CHECK_MSG(!bytes_->is_leased(), "bytes are taken away from under a lease");
  const Context& context = bytes_->context;
  const bool pin = !context.device.is_cpu();
  const auto options = at::TensorOptions().dtype(bytes_->tensor.dtype()).pinned_memory(pin);
  bytes_->on_host = at::empty(bytes_->tensor.sizes(), options);
  bytes_->on_host.copy_(bytes_->tensor);
  TakeMemory(bytes_->tensor.storage(), kOffloadedError);
  LedgerEntry& entry = bytes_->entry;
  entry = LedgerEntry(context.ledger, entry.use(), pin ? MemoryTier::kPinned : MemoryTier::kHost,
                      entry.bytes());
}

}  // namespace ds::zero
