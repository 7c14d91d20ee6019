#include "runtime/plan/memory/portion_bytes.h"

#include <algorithm>

#include "runtime/config/model_state.h"

namespace ds::models {
namespace {

constexpr std::int64_t kFloat = 4;

}  // namespace

std::int64_t CountTileScores(const DecoderSpec& spec, const MicroBatch& batch, std::int64_t heads,
                             std::int64_t tokens) {
  const bool narrow = spec.window > 0 && spec.window < batch.seq_len;
  const bool distances =
      spec.positions == Positions::kAlibi || spec.positions == Positions::kAlibiRounded;
  const bool fused = !batch.on_gpu && !batch.documents && !narrow && !distances &&
                     spec.attention_dropout == 0.0 && spec.attention_soft_cap == 0.0;
  constexpr std::int64_t kTileBytes = std::int64_t{64} << 20, kCopies = 4;
  const std::int64_t all = batch.samples * heads * tokens * tokens * kFloat;
  return fused ? 0 : kCopies * std::min(kTileBytes, all);
}

std::optional<PortionBytes> CountPortionBytes(const DecoderSpec& spec, const MicroBatch& batch) {
  if (!IsInPortions(batch)) return std::nullopt;
  const std::int64_t width = config::Width(batch.type);
  const std::int64_t heads = batch.own_heads > 0 ? batch.own_heads : spec.heads;
  const std::int64_t kv_heads = batch.own_kv_heads > 0 ? batch.own_kv_heads : spec.kv_heads;
  const std::int64_t query = heads * spec.head_width, key = kv_heads * spec.head_width;
  const std::int64_t hidden = batch.tokens() * spec.width * width;
  const std::int64_t last = (batch.seq_len - 1) % batch.portion + 1;
  const std::int64_t earlier = batch.samples * (batch.seq_len - last);  // tokens with waiting keys
  const std::int64_t tokens = batch.samples * batch.portion;            // per chunk
  const std::int64_t scores = CountTileScores(spec, batch, heads, batch.portion);
  PortionBytes bytes;
  bytes.again = hidden;
  if (!batch.portions_move) {
    bytes.kept =
        hidden + earlier * 2 * key * width + batch.all_tokens() * (query * width + heads * kFloat);
  }
  // The CPU generator state of LibTorch is kept for each chunk's first run.
  constexpr std::int64_t kGenerator = 5056;
  bytes.kept += (batch.seq_len + batch.portion - 1) / batch.portion * kGenerator;
  bytes.forward = 2 * hidden + tokens * query * (kFloat + 2 * width) + scores;
  const std::int64_t gradients = batch.portions_move ? tokens : earlier;  // of keys, in fp32
  const std::int64_t first =
      gradients * 2 * key * kFloat + tokens * (query + 2 * key) * (kFloat + 3 * width) + scores;
  // At the end no chunk waits, and the input gradients of all chunks are concatenated.
  bytes.backward = std::max(first - hidden, hidden - bytes.kept);
  return bytes;
}

}  // namespace ds::models
