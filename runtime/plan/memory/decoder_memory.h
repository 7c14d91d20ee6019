#pragma once

// This says what bytes a micro-batch makes in each of a decoder's blocks. Numbers only, without
// LibTorch: dsrun predicts with them, and tests hold them to what the blocks really keep
// (tests/ranks/activation_memory_test.cc). Whoever changes what a layer keeps for its backward pass
// changes KeptByLayer.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/config/ds_config.h"
#include "runtime/config/recompute_choice.h"
#include "runtime/plan/memory/trained_part.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

struct MicroBatch {
  std::int64_t samples = 1;
  std::int64_t seq_len = 1;
  config::DataType type = config::DataType::kFp32;  // of parameters and activations
  bool on_gpu = false;
  std::int64_t mlp_tiles = 1;  // feed-forward parts run on so many parts of the rows
  // Have the tokens of a sample between them, and in attention the heads, of which `own_heads` and
  // `own_kv_heads` are the most that one has.
  int sequence_ranks = 1;
  std::int64_t own_heads = 0, own_kv_heads = 0;  // 0: all
  bool in_ring = false;        // in attention, too, they have their tokens, and keys go round
  std::int64_t portion = 0;    // tokens of a sample that attention takes at once; 0: all
  bool portions_move = false;  // what waits of them leaves the device
  int expert_ranks = 1;        // have each layer's experts between them
  // Rows that come to this one's over their even share: in all layers, or one number for each that
  // has experts.
  double expert_load = 1.0;
  std::vector<double> layer_loads = {};
  int tensor_ranks = 1;      // have the decoder between them, of which this is one part
  bool keeps_parts = false;  // each of these, of what recomputed layers were given
  bool documents = false;    // several in a sample, of which none sees another
  // These layers see so many tokens of a sample (random_ltd); 0: all.
  std::int64_t kept_tokens = 0;
  std::vector<std::int64_t> dropping = {};

  bool DropsIn(std::int64_t layer) const {
    return kept_tokens > 0 && kept_tokens < seq_len &&
           std::find(dropping.begin(), dropping.end(), layer) != dropping.end();
  }
  std::int64_t all_tokens() const { return samples * seq_len; }
  std::int64_t tokens() const { return all_tokens() / sequence_ranks; }  // of this rank
};

// Bytes that a micro-batch needs for one block, beside what blocks before it have kept.
struct BlockBytes {
  std::int64_t kept = 0;      // from its forward pass for the backward pass
  std::int64_t forward = 0;   // the most in the forward pass, what it keeps included
  std::int64_t backward = 0;  // the most in the backward pass, what it has kept included
  // This is what the backward pass keeps for gradients of weights that come behind it, and the most
  // at its end.
  std::int64_t delayed = 0, delaying = 0;
};

// By block. Without the gradients of parameters, but with that of the head's matrix, which is made
// in its forward pass; without the tiles, 48 MiB at most, of bf16 products on processors that
// multiply fp32 faster (models/kernels/matmul.h). Requires CheckMemoryIsKnown.
std::vector<BlockBytes> ListBlockBytes(const DecoderSpec& spec, const MicroBatch& batch,
                                       const config::RecomputeChoice& recompute);
// The same of a model of which a part is trained, as `training` says of each block.
std::vector<BlockBytes> ListBlockBytes(const DecoderSpec& spec, const MicroBatch& batch,
                                       const config::RecomputeChoice& recompute,
                                       const std::vector<BlockTraining>& training);

}  // namespace ds::models
