#pragma once

// This says what a decoder's blocks hold: the sizes of their parameters, and the bytes that a
// micro-batch makes in each of them. Numbers only, without LibTorch: dsrun predicts with them, and
// tests hold them to what the blocks really keep (tests/ranks/activation_memory_test.cc). Whoever
// changes what a layer keeps for its backward pass changes KeptByLayer.

#include <cstdint>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/config/recompute_choice.h"
#include "runtime/models/spec/decoder_spec.h"

namespace ds::models {

// OK where it is known what such a decoder keeps of a micro-batch. The error names what is not.
Status CheckMemoryIsKnown(const DecoderSpec& spec);

// A block's parameters in the order of the model, and what else it reads.
struct BlockSizes {
  std::vector<std::int64_t> numels;
  std::int64_t matrices = 0;  // elements of those with two dimensions
  std::vector<int> also_reads = {};
  bool backward_reads = true;  // parameters
};

// The embedding, the layers, the head. Requires a decoder without experts.
std::vector<BlockSizes> ListBlockSizes(const DecoderSpec& spec);

struct MicroBatch {
  std::int64_t samples = 1;
  std::int64_t seq_len = 1;
  config::DataType type = config::DataType::kFp32;  // of parameters and activations
  bool on_gpu = false;
  std::int64_t mlp_tiles = 1;  // feed-forward parts run on so many parts of the rows

  std::int64_t tokens() const { return samples * seq_len; }
};

// So much oneDNN takes on its way through a product on the CPU.
inline constexpr std::int64_t kProductScratch = std::int64_t{512} << 10;

// Bytes that a micro-batch needs for one block, beside what blocks before it have kept.
struct BlockBytes {
  std::int64_t kept = 0;      // from its forward pass for the backward pass
  std::int64_t forward = 0;   // the most in the forward pass, what it keeps included
  std::int64_t backward = 0;  // the most in the backward pass, what it has kept included
};

// By block. Without the gradients of parameters, but with that of the head's matrix, which is made
// in its forward pass; without the tiles, 48 MiB at most, of bf16 products on processors that
// multiply fp32 faster (models/matmul.h). Requires CheckMemoryIsKnown.
std::vector<BlockBytes> ListBlockBytes(const DecoderSpec& spec, const MicroBatch& batch,
                                       const config::RecomputeChoice& recompute);

}  // namespace ds::models
