#pragma once

// One micro-batch of next-token prediction.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ds::data {

struct Batch {
  at::Tensor inputs;        // [B, S] int64, CPU, contiguous
  at::Tensor labels;        // [B, S] int64: the inputs shifted by one token
  std::int64_t tokens = 0;  // B * S
};

}  // namespace ds::data
