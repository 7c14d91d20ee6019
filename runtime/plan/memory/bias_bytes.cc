#include "runtime/plan/memory/bias_bytes.h"

#include "runtime/config/model_state.h"
#include "runtime/plan/memory/portion_bytes.h"

namespace ds::models {

std::int64_t CountBiasBytes(const DecoderSpec& spec, const MicroBatch& batch) {
  // It is computed one tile at a time.
  if ((batch.sequence_ranks > 1 && batch.in_ring) || IsInPortions(batch)) return 0;
  const bool distances =
      spec.positions == Positions::kAlibi || spec.positions == Positions::kAlibiRounded;
  const bool is_narrow = spec.window > 0 && spec.window < batch.seq_len;
  bool windowed = false, plain = false;
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    (spec.KindOf(layer).windowed && spec.window > 0 ? windowed : plain) = true;
  }
  const bool all = distances || batch.documents;
  const std::int64_t biases = (windowed && (is_narrow || all) ? 1 : 0) + (plain && all ? 1 : 0);
  const std::int64_t heads = batch.own_heads > 0 ? batch.own_heads : spec.heads;
  return biases * (batch.documents ? batch.samples : 1) * (distances ? heads : 1) * batch.seq_len *
         batch.seq_len * config::Width(batch.type);
}

}  // namespace ds::models
