#pragma once

// Store and Lease: the only owner of a flat tensor's bytes (a bucket's parameters, gradients,
// master weights, or one kind of the optimizer's state), and the right to use a range of them.
//
// The bytes lie where the rank computes, or, while nobody has a lease, where Release has taken
// them: in host memory (pinned, where the device is not the CPU). The tensor, its storage object
// and all views of it stay, so that a model's parameters can be views; they must not be read while
// the bytes are away. Every byte is in the memory ledger, under the tier in which it is.
//
// Threads: one thread at a time. Lifetimes: the context outlives its stores, a store its leases.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "runtime/device/memory_ledger.h"
#include "runtime/zero/context.h"
#include "runtime/zero/flat_layout.h"

namespace ds::zero {

struct FlatSpec {
  std::int64_t count = 0;
  c10::ScalarType dtype = c10::kFloat;
  device::MemoryUse use = device::MemoryUse::kOther;
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
  // Takes memory of undefined values.
  Store(const Context& context, const FlatSpec& spec);
  ~Store();
  Store(Store&&) noexcept;
  Store& operator=(Store&& other) noexcept;

  bool defined() const { return bytes_ != nullptr; }
  c10::ScalarType dtype() const;

  // Lends the range of the values, or all of them, to read and write, once they are there.
  Lease Acquire(const FlatRange& range);
  Lease Acquire();
  // Lends the range without moving it: of host memory, while the bytes are away. They do not come
  // back from under such a lease either.
  Lease AcquireWhereItLies(const FlatRange& range);

  // Brings the bytes back ahead of a lease. Does nothing where they are there; requires that there
  // is no lease of them where they are not.
  void Prefetch();
  // Takes the bytes to host memory. Requires that there is no lease. Does nothing where they are
  // away.
  void Release();

 private:
  struct Bytes;
  std::unique_ptr<Bytes> bytes_;
};

}  // namespace ds::zero
