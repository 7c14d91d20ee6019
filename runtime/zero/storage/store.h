#pragma once

// Store and Lease: a store is the only owner of a flat tensor's bytes (a bucket's parameters,
// gradients, master weights, or one kind of optimizer state). A lease is the right to use a range.
//
// FlatSpec::storage_tier selects the tier that stores the bytes. If it is StorageTier::kHere, the
// tensor, its storage object and all views of it stay valid while the bytes are elsewhere, so that
// a model's parameters can be views; they must not be read meanwhile. If it is the host or a file,
// the only tensors are the leases', range by range. Copies from and to the host overlap with
// computation; only changed ranges are copied back (host_windows.h). A device gets a separate copy
// of a file's range for each lease, so of two overlapping leases neither may write
// (Tiers::copies_from_files). Every byte is in the memory ledger, under each tier that holds it.
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
  // Small stores with StorageTier::kFile stay in memory (Tiers::smallest_bytes).
  StorageTier storage_tier = StorageTier::kHere;
};

// A lease ends with its destructor, or when another one is assigned to it.
class Lease {
 public:
  Lease() = default;
  // Wraps a tensor that needs no lease, because another owner keeps it in memory.
  explicit Lease(at::Tensor tensor) : tensor_(std::move(tensor)) {}

  const at::Tensor& tensor() const { return tensor_; }

 private:
  friend class Store;
  at::Tensor tensor_;
  std::shared_ptr<const void> use_;  // counted by the store
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
  // Lends the range on its own tier: in host memory, once changes have been copied back. The bytes
  // are not moved away during such a lease, either. A file's range is loaded to the host only.
  Lease AcquireOnOwnTier(const FlatRange& range, Access access);
  void Zero();

  // Load the bytes, or start loading them, ahead of a lease. Do nothing if they are present. If
  // they are not, there must be no lease.
  void Prefetch();
  void Prefetch(const FlatRange& range);
  // Offloads the bytes, or those of the range, to their tier. Requires that nothing leases them.
  void Offload();
  void Offload(const FlatRange& range);
  // Waits until the bytes that Stow writes to files are written.
  void Settle();
  // Moves the bytes to host memory until Prefetch brings them back. Requires that there is no
  // lease. Does nothing if they are offloaded already.
  void Release();

 private:
  struct Bytes;
  std::unique_ptr<Bytes> bytes_;
};

}  // namespace ds::zero
