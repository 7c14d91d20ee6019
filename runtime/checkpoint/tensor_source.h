#pragma once

// TensorSource: elements of one tensor that a rank holds, wherever their bytes lie, for a
// checkpoint to read and write range by range. A tensor is one kind of it; what lies on another
// tier has no tensor.
//
// Bytes change hands inside a call, so that what has them in memory copies nothing and what has not
// needs no more memory than for the range asked for.
//
// Threads: one thread at a time. Borrowed until the save or load that asked for it returns.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "runtime/base/status.h"

namespace ds::checkpoint {

// A save and a load ask a source for no more than this at once: their memory beside the state.
inline constexpr std::int64_t kMostBytesAtOnce = std::int64_t{16} << 20;

class TensorSource {
 public:
  using TakeBytes = std::function<Status(std::span<const std::byte>)>;
  using FillBytes = std::function<Status(std::span<std::byte>)>;

  virtual ~TensorSource() = default;
  virtual std::int64_t count() const = 0;    // elements
  virtual at::ScalarType dtype() const = 0;  // in the checkpoint
  std::int64_t item_size() const { return static_cast<std::int64_t>(c10::elementSize(dtype())); }

  // Calls `take` once with the bytes of elements [first, first + count), which last as long as the
  // call. Returns why they could not be read, or what `take` has returned.
  virtual Status Read(std::int64_t first, std::int64_t count, const TakeBytes& take) = 0;
  // Calls `fill` once with memory for these elements, and makes what it has put there their bytes
  // unless it fails.
  virtual Status Write(std::int64_t first, std::int64_t count, const FillBytes& fill) = 0;
};

// The elements of a tensor, 1-D and contiguous, on any device. It views the live state.
std::shared_ptr<TensorSource> SourceOf(at::Tensor tensor);

// All elements, in the memory of the host.
StatusOr<at::Tensor> ReadAll(TensorSource& source);
// Requires as many values as the source has elements; converts them.
Status WriteAll(const at::Tensor& values, TensorSource& source);

}  // namespace ds::checkpoint
