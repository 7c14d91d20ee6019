#pragma once

// BufferPool and PooledTensor: flat tensors whose memory can be released and acquired again, while
// the tensor, its storage object and all its views stay valid.
//
// Autograd keeps views of parameters for the backward pass. Only the data pointer of their storage
// changes, so those views see the values again as soon as the memory is back.
//
// Threads: one thread at a time. Lifetimes: the pool must outlive its tensors.

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/plan/zero/pool_sizes.h"
#include "runtime/zero/storage/context.h"

namespace ds::zero {

class BufferPool {
 public:
  explicit BufferPool(const Context& context) : context_(context) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Registers one more tensor that will use buffers of this size (PoolSizes).
  void AddUser(std::int64_t bytes) { sizes_.AddUser(bytes); }

  at::DataPtr TakeBuffer(std::int64_t bytes);
  void ReturnBuffer(at::DataPtr buffer, std::int64_t bytes);
  // Frees the idle buffers.
  void FreeIdle();

 private:
  void Book();  // updates the ledger to the held bytes

  const Context& context_;
  PoolSizes sizes_;
  std::int64_t booked_ = 0;
  std::map<std::int64_t, std::vector<at::DataPtr>> idle_;  // by size
};

class PooledTensor {
 public:
  // Creates the tensor without memory; call Acquire to get it.
  PooledTensor(BufferPool& pool, std::int64_t count, c10::ScalarType dtype, c10::Device device);
  ~PooledTensor() { Release(); }
  PooledTensor(const PooledTensor&) = delete;
  PooledTensor& operator=(const PooledTensor&) = delete;

  const at::Tensor& tensor() const { return tensor_; }
  bool present() const { return present_; }

  // Gives the storage a buffer with undefined contents. Does nothing when present.
  void Acquire();
  // Returns the buffer to the pool: reading the tensor or its views throws until the next Acquire
  // (storage_guard.h). Does nothing when not present.
  void Release();

 private:
  BufferPool& pool_;
  at::Tensor tensor_;
  std::int64_t bytes_;
  bool present_ = false;
};

}  // namespace ds::zero
