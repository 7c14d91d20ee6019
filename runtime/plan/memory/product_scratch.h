#pragma once

// CountProductScratch and CountWidenedTiles: the scratch memory of a matrix product, without
// operands and result.

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

// Returns whether this processor multiplies matrices of a 16-bit type faster in fp32: bf16 without
// AMX (but for AMD's AVX-512), fp16 without AVX512-FP16. models/kernels/matmul.h converts them
// then. Constant in a process that has called ProbeAndCapIsa, or that computes no product.
bool IsMultipliedInFp32(config::DataType type);

// Returns the bytes of the libraries' buffers, which exist with and without a product: none for the
// tiles of CountWidenedTiles, which MKL multiplies. Pure.
std::int64_t CountProductScratch(const MicroBatch& batch);

// Returns the bytes of the tiles in fp32 of a product of a micro-batch's rows of `inner` elements
// with `columns` columns, or of one of its gradients: one of each operand and of the result. 0 if
// the processor multiplies the type as it is. Pure.
std::int64_t CountWidenedTiles(const MicroBatch& batch, std::int64_t inner, std::int64_t columns);

}  // namespace ds::models
