#pragma once

// SavedBuffer is contiguous memory for the tensors that recomputed parts keep of a forward pass
// (activation_checkpointing.contiguous_memory_optimization). It avoids fragmentation by
// shorter-lived tensors.
//
// The memory for a size is allocated with its first tensor and freed with the last one, because
// slices keep it alive. Not thread-safe.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

namespace ds::activation {

class SavedBuffer {
 public:
  // For `count` tensors of each input, size and dtype.
  explicit SavedBuffer(std::int64_t count) : count_(count) {}

  // Copies a flat tensor, input number `input` of a part, to the next slice, and returns the slice.
  // Throws c10::Error if all slices are used.
  at::Tensor Keep(std::size_t input, const at::Tensor& values);

 private:
  struct Slices {
    at::Tensor all;
    std::int64_t taken = 0;
  };
  std::int64_t count_;
  std::map<std::tuple<std::size_t, at::ScalarType, std::int64_t>, Slices> slices_;
};

}  // namespace ds::activation
