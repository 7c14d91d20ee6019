#pragma once

// TensorSource lets a checkpoint read and write a rank's elements of one tensor, range by range, in
// any kind of storage. A tensor in memory is one implementation; elements on an offload tier have
// no tensor.
//
// Bytes are passed to a callback. A source in memory therefore copies nothing, and any other source
// needs memory only for the requested range.
//
// Not thread-safe. A source is borrowed until the save or load that requested it returns.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "runtime/base/status.h"

namespace ds::checkpoint {

// Maximum bytes that a save or load requests at once, and so its memory in addition to the state.
inline constexpr std::int64_t kMostBytesAtOnce = std::int64_t{16} << 20;

class TensorSource {
 public:
  using TakeBytes = std::function<Status(std::span<const std::byte>)>;
  using FillBytes = std::function<Status(std::span<std::byte>)>;

  virtual ~TensorSource() = default;
  virtual std::int64_t count() const = 0;    // number of elements
  virtual at::ScalarType dtype() const = 0;  // dtype in the checkpoint
  std::int64_t item_size() const { return static_cast<std::int64_t>(c10::elementSize(dtype())); }

  // Calls `take` once with the bytes of elements [first, first + count). The bytes are valid only
  // during the call. Returns the read error, or the result of `take`.
  virtual Status Read(std::int64_t first, std::int64_t count, const TakeBytes& take) = 0;
  // Calls `fill` once with memory for these elements, and stores the bytes if `fill` succeeds.
  virtual Status Write(std::int64_t first, std::int64_t count, const FillBytes& fill) = 0;
};

// Returns a source for a 1-D contiguous tensor on any device. It is a view of the live tensor.
std::shared_ptr<TensorSource> SourceOf(at::Tensor tensor);
// Returns a source of the same elements that converts them from and to `dtype`.
std::shared_ptr<TensorSource> ConvertSource(std::shared_ptr<TensorSource> source,
                                            at::ScalarType dtype);

// Reads all elements into host memory.
StatusOr<at::Tensor> ReadAll(TensorSource& source);
// Converts `values` and writes them. Requires one value per element of the source.
Status WriteAll(const at::Tensor& values, TensorSource& source);

}  // namespace ds::checkpoint
