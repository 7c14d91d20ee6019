#pragma once

// Store and Lease: the only owner of a flat tensor's bytes (a bucket's parameters, gradients,
// master weights, or one kind of the optimizer's state), and the right to use a range of them.
//
// The bytes of a store rest where its FlatSpec says. Of one that rests here the tensor, its storage
// object and all views of it stay wherever the bytes are, so that a model's parameters can be
// views; they must not be read while the bytes are away. Of one on the host or in a file there is
// no tensor but those of leases, range by range. What comes from the host, and goes there where it
// has been changed, does so beside the computation (host_windows.h). From a file a device has
// copies, each one a lease's own, so that of two that overlap none may write
// (Tiers::copies_from_files). Every byte is in the memory ledger, under the tiers in which it is.
//
// Threads: one thread at a time. Lifetimes: the context outlives its stores, a store its leases.
// Errors: what cannot be read or written is a c10::Error that says which file, where and why.

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
  Rest rest = Rest::kHere;  // files may leave small ones here (Tiers)
};

// Ends with its destructor, or when another one is assigned.
class Lease {
 public:
  Lease() = default;
  // Makes one of a tensor that needs none, as somebody else keeps it there.
  explicit Lease(at::Tensor tensor) : tensor_(std::move(tensor)) {}

  const at::Tensor& tensor() const { return tensor_; }

 private:
  friend class Store;
  at::Tensor tensor_;
  std::shared_ptr<const void> use_;  // is counted by the store
};

class Store {
 public:
  Store();
  // Takes memory of undefined values, or room in a file.
  Store(const Context& context, const FlatSpec& spec);
  ~Store();
  Store(Store&&) noexcept;
  Store& operator=(Store&& other) noexcept;

  bool defined() const { return bytes_ != nullptr; }
  c10::ScalarType dtype() const;
  FlatRange whole() const;
  // Tells whether the bytes rest somewhere else than here.
  bool rests_away() const;
  bool rests_in_file() const;

  // Lends the range of the values, or all of them, once they are there: on a device for what the
  // current stream is given from here on. What has been acquired to read must not be written.
  Lease Acquire(const FlatRange& range, Access access = Access::kUpdate);
  Lease Acquire(Access access = Access::kUpdate) { return Acquire(whole(), access); }
  // Lends the range where it rests: of host memory once what was changed is there. The bytes do not
  // come from under such a lease either. Of a file it brings the range to the host, no more.
  Lease AcquireWhereItLies(const FlatRange& range, Access access);
  void Zero();

  // Bring the bytes, or begin to, ahead of a lease. Do nothing where they are there; require that
  // there is no lease of them where they are not.
  void Prefetch();
  void Prefetch(const FlatRange& range);
  // Takes the bytes, or those of the range, to where they rest. Requires that there is no lease of
  // these.
  void Stow();
  void Stow(const FlatRange& range);
  // Waits until what Stow writes to files is written.
  void Settle();
  // Takes what is here to host memory until it is brought back. Requires that there is no lease.
  // Does nothing where the bytes are away.
  void Release();

 private:
  struct Bytes;
  std::unique_ptr<Bytes> bytes_;
};

}  // namespace ds::zero
