#pragma once

// PortionBytes: what the attention part of a layer holds where it takes a portion of a sample at a
// time (parallel/sequence/portion_attention.h), beside what goes into the layer and its norm. Pure.

#include <cstdint>
#include <optional>

#include "runtime/plan/memory/decoder_memory.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

struct PortionBytes {
  // This is kept of all portions: what went into the projections, keys, values and results; nothing
  // where they move. `again` is kept where attention is computed again as a whole.
  std::int64_t kept = 0, again = 0;
  std::int64_t forward = 0;  // the most in the forward pass, beside what is kept
  // The most in the backward pass, beside what is kept and two gradients as wide as the layer.
  std::int64_t backward = 0;

  std::int64_t KeptWhere(bool recomputes_attention) const {
    return recomputes_attention ? again : kept;
  }
};

// Tells whether attention takes samples of the micro-batch in more than one portion.
inline bool IsInPortions(const MicroBatch& batch) {
  return batch.portion > 0 && batch.portion < batch.seq_len;
}

// The most that scores take of one tile of a block of so many queries and keys, of all samples,
// where attention by blocks is made of operators (parallel/sequence/attention_block.h); else
// nothing.
std::int64_t CountTileScores(const DecoderSpec& spec, const MicroBatch& batch, std::int64_t heads,
                             std::int64_t tokens);

// Absent where it does not. Requires a decoder whose keys and values do not come from narrow rows.
std::optional<PortionBytes> CountPortionBytes(const DecoderSpec& spec, const MicroBatch& batch);

}  // namespace ds::models
