#pragma once

// CountProductScratch: what a matrix product takes beside its operands and its result. Pure.

#include <cstdint>

#include "runtime/plan/memory/decoder_memory.h"

namespace ds::models {

// So much oneDNN takes on its way through a product on the CPU.
inline constexpr std::int64_t kProductScratch = std::int64_t{512} << 10;

// So much LibTorch's allocator gives cuBLAS for as long as a rank runs: 32 MiB, as of Hopper, 8 MiB
// on GPUs before, for each thread that asks for products, the forward pass's and the backward
// pass's (LibTorch's CublasHandlePool.cpp).
inline constexpr std::int64_t kDeviceScratch = std::int64_t{64} << 20;

// A product that is computed in fp32 for 16-bit operands (models/kernels/matmul.h) widens no more
// rows and columns of them at once: 16 MiB.
inline constexpr std::int64_t kWidenedTile = 2048;

// Counts the bytes of a product of a micro-batch's rows of `inner` elements that has `columns`;
// with none there is no product, yet a library that may take its buffer. In fp16 on the CPU a tile
// of each operand and of the result is in fp32 besides (models/kernels/matmul.h). On a GPU it is
// always there, whatever the product.
std::int64_t CountProductScratch(const MicroBatch& batch, std::int64_t inner, std::int64_t columns);

}  // namespace ds::models
