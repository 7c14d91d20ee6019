#pragma once

// PortionBytes: the memory of a layer's attention part if it processes a sample portion by portion
// (FPDT chunks; parallel/sequence/portion_attention.h), without the input of the layer and its
// norm. Pure.

#include <cstdint>
#include <optional>

#include "runtime/plan/memory/decoder_memory.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

struct PortionBytes {
  // `kept`: for all chunks the input of the projections, keys, values and results, unless they are
  // offloaded. `again`: the bytes kept if all of attention is recomputed.
  std::int64_t kept = 0, again = 0;
  std::int64_t forward = 0;  // peak in the forward pass, in addition to the kept bytes
  // Peak in the backward pass, in addition to the kept bytes and two gradients as wide as the
  // layer.
  std::int64_t backward = 0;

  std::int64_t KeptWhere(bool recomputes_attention) const {
    return recomputes_attention ? again : kept;
  }
};

// True if attention processes samples of the micro-batch in more than one chunk.
inline bool IsInPortions(const MicroBatch& batch) {
  return batch.portion > 0 && batch.portion < batch.seq_len;
}

// Returns the most bytes that attention scores of one tile take, for a block of `tokens` queries
// and keys and for all samples, if blockwise attention is built from operators
// (parallel/sequence/attention_block.h); else 0.
std::int64_t CountTileScores(const DecoderSpec& spec, const MicroBatch& batch, std::int64_t heads,
                             std::int64_t tokens);

// Returns nullopt unless IsInPortions. Requires a decoder without latent keys and values.
std::optional<PortionBytes> CountPortionBytes(const DecoderSpec& spec, const MicroBatch& batch);

}  // namespace ds::models
