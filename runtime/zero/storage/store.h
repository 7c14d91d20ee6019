#pragma once

// A Store is the only owner of a flat tensor's bytes (a bucket's parameters, gradients, master
// weights, or one kind of optimizer state). A Lease is the right to use a range.
//
// FlatSpec::storage_tier selects the tier that stores the bytes between leases:
// - StorageTier::kHere, the device that computes: the store is one tensor. Release moves its bytes
//   to the host for a while. The tensor, its storage object and all views of it (a model's
//   parameters are such views) then stay valid; reading them throws until Prefetch.
// - kHost: the store has no tensor; each lease has a tensor of its range on the device. Copies
//   overlap with computation, and only changed ranges are copied back (host_windows.h).
// - kFile: like kHost. If the device cannot access the host's file buffers
//   (Tiers::copies_from_files), each lease is a separate copy on the device. Overlapping leases are
//   then allowed only if none writes.
//
// Every byte is in the memory ledger, under each tier that holds it.
//
// Threads: one thread at a time. Lifetimes: the context must outlive its stores, and a store its
// leases. Errors: throws c10::Error, with file, location and cause, if a read or write fails.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "runtime/device/memory_ledger.h"
#include "runtime/offload/windows.h"
#include "runtime/plan/zero/flat_layout.h"
#include "runtime/zero/storage/context.h"

namespace ds::zero {

using offload::Access;

struct FlatSpec {
  std::int64_t count = 0;
  c10::ScalarType dtype = c10::kFloat;
  device::MemoryUse use = device::MemoryUse::kOther;
  // A small store with kFile is stored as with kHere instead (Tiers::smallest_bytes).
  StorageTier storage_tier = StorageTier::kHere;
};

// A lease ends when its last copy is destroyed or overwritten.
class Lease {
 public:
  Lease() = default;
  // Wraps a tensor that needs no lease, because another owner keeps it in memory.
  explicit Lease(at::Tensor tensor) : tensor_(std::move(tensor)) {}

  const at::Tensor& tensor() const { return tensor_; }

 private:
  friend class Store;
  at::Tensor tensor_;
  std::shared_ptr<const void> use_;  // its owners are counted: the range is in use while it lives
};

class Store {
 public:
  Store();
  // Allocates memory with undefined values, or space in a file.
  Store(const Context& context, const FlatSpec& spec);
  ~Store();
  Store(Store&&) noexcept;
  Store& operator=(Store&& other) noexcept;

  bool defined() const { return bytes_ != nullptr; }
  c10::ScalarType dtype() const;
  FlatRange full_range() const;
  // Returns whether the bytes are stored on another tier than StorageTier::kHere.
  bool is_offloaded() const;
  bool is_in_file() const;

  // Lends the range of the values, or all of them. Waits until they are present; on a device, they
  // are present for work that is enqueued on the current stream from here on. Values acquired for
  // reading must not be written.
  Lease Acquire(const FlatRange& range, Access access = Access::kUpdate);
  Lease Acquire(Access access = Access::kUpdate) { return Acquire(full_range(), access); }
  // Lends the range without bringing it to the device: for kHost in host memory, once changes have
  // been copied back (on the device if a lease keeps the range there); for kFile in a buffer of the
  // host; for kHere where the bytes are. As during other leases, the bytes are not moved away.
  Lease AcquireOnOwnTier(const FlatRange& range, Access access);
  // Sets all values to zero.
  void Zero();

  // Loads the bytes, or starts loading them, ahead of a lease. Does nothing if they are present; if
  // they are not, there must be no lease.
  void Prefetch();
  void Prefetch(const FlatRange& range);
  // Writes the bytes, or the ones in the range, back to kHost or kFile, and frees the memory that
  // they took elsewhere. May return before the write has ended. Requires that they are not leased.
  // Does nothing for kHere.
  void Offload();
  void Offload(const FlatRange& range);
  // Waits until the writes to files that Offload has started have ended.
  void Settle();
  // Frees the device's memory of the store: moves the bytes of kHere to host memory until Prefetch
  // or Acquire brings them back; for other tiers the same as Offload. Requires that there is no
  // lease.
  void Release();

 private:
  struct Bytes;
  std::unique_ptr<Bytes> bytes_;
};

}  // namespace ds::zero
