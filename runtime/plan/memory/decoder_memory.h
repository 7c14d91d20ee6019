#pragma once

// ListBlockBytes: predicts the bytes of activations of a micro-batch in each block of a decoder.
// Numbers only, without LibTorch: dsrun predicts with them, and tests compare them with the tensors
// that blocks really keep (tests/ranks/activation_memory_test.cc). A change to the tensors that a
// layer saves for its backward pass needs the same change in SavedByLayer.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/config/ds_config.h"
#include "runtime/config/recompute_choice.h"
#include "runtime/plan/memory/trainable_parameters.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

struct MicroBatch {
  std::int64_t samples = 1;
  std::int64_t seq_len = 1;
  config::DataType type = config::DataType::kFp32;  // of parameters and activations
  bool on_gpu = false;
  bool multiplied_in_fp32 = false;  // on the CPU, although the type has 16 bits
  std::int64_t mlp_tiles = 1;       // MLPs process the rows in this many parts
  // These ranks share the tokens of a sample and, in attention, the heads. `own_heads` and
  // `own_kv_heads` are the most that one rank has.
  int sequence_ranks = 1;
  std::int64_t own_heads = 0, own_kv_heads = 0;  // 0: all
  bool in_ring = false;  // ring attention: ranks keep their tokens in attention, keys circulate
  std::int64_t sp_chunk = 0;     // tokens per FPDT chunk in attention; 0: all
  bool offloads_chunks = false;  // chunks that wait are offloaded from the device
  int expert_ranks = 1;          // share each layer's experts
  // Rows that this rank's experts receive, relative to their even share: one number for all layers,
  // or one per layer with experts.
  double expert_load = 1.0;
  std::vector<double> layer_loads = {};
  int tensor_ranks = 1;      // share the decoder; this rank has one part
  bool keeps_parts = false;  // each keeps only a part of the inputs of recomputed layers
  bool documents = false;    // several per sample, without attention between them
  // Layers in `dropping` process this many tokens of a sample (random_ltd); 0: all.
  std::int64_t kept_tokens = 0;
  std::vector<std::int64_t> dropping = {};

  bool DropsIn(std::int64_t layer) const {
    return kept_tokens > 0 && kept_tokens < seq_len &&
           std::find(dropping.begin(), dropping.end(), layer) != dropping.end();
  }
  std::int64_t all_tokens() const { return samples * seq_len; }
  std::int64_t tokens() const { return all_tokens() / sequence_ranks; }  // of this rank
};

// Bytes that one block needs for a micro-batch, without those kept by earlier blocks.
struct BlockBytes {
  std::int64_t saved = 0;     // by the forward pass, for the backward pass
  std::int64_t forward = 0;   // peak of the forward pass, including `saved`
  std::int64_t backward = 0;  // peak of the backward pass, including `saved`
  // With delayed weight gradients: bytes kept from the backward pass for them, and the peak at its
  // end.
  std::int64_t delayed = 0, delaying = 0;
};

// Returns the bytes by block. Parameter gradients are not included, except the gradient of the
// head's matrix, which is computed in its forward pass. Also not included: tiles (at most 48 MiB)
// of bf16 products on processors that multiply fp32 faster (models/kernels/matmul.h). Requires
// CheckMemoryIsKnown.
std::vector<BlockBytes> ListBlockBytes(const DecoderSpec& spec, const MicroBatch& batch,
                                       const config::RecomputeChoice& recompute);
// The same for a model that is partly trained, as described by `training` for each block.
std::vector<BlockBytes> ListBlockBytes(const DecoderSpec& spec, const MicroBatch& batch,
                                       const config::RecomputeChoice& recompute,
                                       const std::vector<BlockTraining>& training);

// The elements per token of attention with latent keys and values
// (QkvLayout::kLatent, models/decoder/decoder_attention.h).
struct LatentValues {
  std::int64_t heads = 0;    // of the queries, or the keys, of all heads
  std::int64_t wide = 0;     // the up-projection from which keys and values are split
  std::int64_t mixed = 0;    // values of all heads
  std::int64_t narrow = 0;   // kept for the narrow rows and their norms
  int norms = 0;             // each keeps one fp32 number
  std::int64_t delayed = 0;  // kept for delayed gradients of the projections before the heads
  // Values are padded to the keys' width, and the result, equally wide, is truncated.
  bool pads() const { return mixed < heads; }

  // Returns the elements kept by attention: queries, keys, values and results, or their sources.
  std::int64_t SavedByHeads(bool recomputes) const {
    if (recomputes) return 2 * heads + wide + mixed;
    return pads() ? 4 * heads + mixed : 2 * heads + wide + mixed;
  }
};

LatentValues CountLatentValues(const DecoderSpec& spec);

}  // namespace ds::models
