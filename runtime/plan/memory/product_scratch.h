#pragma once

// CountProductScratch: the scratch memory of a matrix product, without operands and result. Pure.

#include <cstdint>

#include "runtime/plan/memory/decoder_memory.h"

namespace ds::models {

// oneDNN's scratch memory for a product on the CPU.
inline constexpr std::int64_t kProductScratch = std::int64_t{512} << 10;

// The cuBLAS workspaces that LibTorch's allocator holds for the life of a rank: 32 MiB from Hopper
// on (8 MiB on earlier GPUs) for each of the two threads that compute products, in the forward and
// in the backward pass (LibTorch's CublasHandlePool.cpp).
inline constexpr std::int64_t kDeviceScratch = std::int64_t{64} << 20;

// The most rows and columns of 16-bit operands that a product computed in fp32
// (models/kernels/matmul.h) converts at once: 16 MiB.
inline constexpr std::int64_t kWidenedTile = 2048;

// Returns the scratch bytes of a product with `columns` columns of a micro-batch's rows of `inner`
// elements. With 0 columns there is no product, but a library that may allocate its buffer. In fp16
// on the CPU a tile of each operand and of the result is also in fp32 (models/kernels/matmul.h). On
// a GPU the workspaces always exist.
std::int64_t CountProductScratch(const MicroBatch& batch, std::int64_t inner, std::int64_t columns);

}  // namespace ds::models
