#pragma once

// KeptBuffer: memory in which what recomputed parts keep of a forward pass lies side by side
// (activation_checkpointing.contiguous_memory_optimization), so that it does not lie scattered
// among what comes and goes meanwhile.
//
// All of it is taken with the first tensor of a size, and given back with the last one: slices keep
// it. Threads: one thread at a time.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

namespace ds::activation {

class KeptBuffer {
 public:
  // For `count` tensors of each input, size and dtype.
  explicit KeptBuffer(std::int64_t count) : count_(count) {}

  // Copies a flat tensor, the input of that number of a part, into the next slice and returns that.
  // Throws c10::Error when all are taken.
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
