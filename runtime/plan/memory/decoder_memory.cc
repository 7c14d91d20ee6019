#include "runtime/plan/memory/decoder_memory.h"

#include <algorithm>
#include <optional>
#include <string>

#include "runtime/config/model_state.h"
#include "runtime/plan/memory/block_sizes.h"
#include "runtime/plan/memory/expert_bytes.h"
#include "runtime/plan/memory/product_scratch.h"
#include "runtime/plan/sequence/attention_tiles.h"

namespace ds::models {
namespace {

constexpr std::int64_t kFloatBytes = 4;

// The memory of a layer's attention part if it processes a sample portion by portion
// (FPDT chunks; parallel/sequence/chunked_attention.h), without the input of the layer and its
// norm.
struct ChunkedAttentionBytes {
  // `saved`: for all chunks the input of the projections, keys, values and results, unless they are
  // offloaded. `again`: the bytes kept if all of attention is recomputed.
  std::int64_t saved = 0, again = 0;
  std::int64_t forward = 0;  // peak in the forward pass, in addition to the kept bytes
  // Peak in the backward pass, in addition to the kept bytes and two gradients as wide as the
  // layer.
  std::int64_t backward = 0;

  std::int64_t SavedBytes(bool recomputes_attention) const {
    return recomputes_attention ? again : saved;
  }
};

// True if attention processes samples of the micro-batch in more than one chunk.
bool IsChunked(const MicroBatch& batch) {
  return batch.sp_chunk > 0 && batch.sp_chunk < batch.seq_len;
}

bool HasDistances(const DecoderSpec& spec) {
  return spec.positions == Positions::kAlibi || spec.positions == Positions::kAlibiRounded;
}

// True if attention over full samples is computed by operators (device/kernels/attention.h).
bool AttendsByOperators(const DecoderSpec& spec, const MicroBatch& batch) {
  if (spec.attention_dropout > 0.0 || spec.attention_soft_cap > 0.0) return true;
  if (!batch.on_gpu) return false;
  const bool narrow = spec.window > 0 && spec.window < batch.seq_len;
  const bool divided = batch.documents || narrow;
  return HasDistances(spec) || (divided && batch.type == config::DataType::kFp32);
}

// The same for the blocks of a ring or of chunks (FPDT).
bool AttendsToBlocksByOperators(const DecoderSpec& spec, const MicroBatch& batch) {
  const bool narrow = spec.window > 0 && spec.window < batch.seq_len;
  return batch.on_gpu || batch.documents || narrow || HasDistances(spec) ||
         spec.attention_dropout > 0.0 || spec.attention_soft_cap > 0.0;
}

// Returns the most bytes that attention scores of one tile take, for all samples.
std::int64_t CountTileScores(const MicroBatch& batch, std::int64_t heads, std::int64_t queries,
                             std::int64_t keys) {
  constexpr std::int64_t kCopies = 3;  // weights, factors, and the gradient or the dropped weights
  const std::int64_t all = batch.samples * heads * queries * keys * kFloatBytes;
  return kCopies * std::min(sequence_parallel::kTileScoreBytes, all);
}

// Returns nullopt unless IsChunked. Requires a decoder without latent keys and values.
std::optional<ChunkedAttentionBytes> CountChunkedAttentionBytes(const DecoderSpec& spec,
                                                                const MicroBatch& batch) {
  if (!IsChunked(batch)) return std::nullopt;
  const std::int64_t width = config::Width(batch.type);
  const std::int64_t heads = batch.own_heads > 0 ? batch.own_heads : spec.heads;
  const std::int64_t kv_heads = batch.own_kv_heads > 0 ? batch.own_kv_heads : spec.kv_heads;
  const std::int64_t query = heads * spec.head_width, key = kv_heads * spec.head_width;
  const std::int64_t hidden = batch.tokens() * spec.width * width;
  const std::int64_t last = (batch.seq_len - 1) % batch.sp_chunk + 1;
  const std::int64_t earlier = batch.samples * (batch.seq_len - last);  // tokens with waiting keys
  const std::int64_t tokens = batch.samples * batch.sp_chunk;           // per chunk
  const std::int64_t scores = AttendsToBlocksByOperators(spec, batch)
                                  ? CountTileScores(batch, heads, batch.sp_chunk, batch.sp_chunk)
                                  : 0;
  ChunkedAttentionBytes bytes;
  bytes.again = hidden;
  if (!batch.offloads_chunks) {
    bytes.saved = hidden + earlier * 2 * key * width +
                  batch.all_tokens() * (query * width + heads * kFloatBytes);
  }
  // The CPU generator state of LibTorch is kept for each chunk's first run.
  constexpr std::int64_t kGenerator = 5056;
  bytes.saved += (batch.seq_len + batch.sp_chunk - 1) / batch.sp_chunk * kGenerator;
  bytes.forward = 2 * hidden + tokens * query * (kFloatBytes + 2 * width) + scores;
  const std::int64_t gradients = batch.offloads_chunks ? tokens : earlier;  // of keys, in fp32
  const std::int64_t first = gradients * 2 * key * kFloatBytes +
                             tokens * (query + 2 * key) * (kFloatBytes + 3 * width) + scores;
  // At the end no chunk waits, and the input gradients of all chunks are concatenated.
  bytes.backward = std::max(first - hidden, hidden - bytes.saved);
  return bytes;
}

std::int64_t QueryWidth(const DecoderSpec& spec) { return spec.heads * spec.head_width; }
std::int64_t KeyWidth(const DecoderSpec& spec) { return spec.kv_heads * spec.head_width; }

// The activation bytes of a micro-batch in one block.
class Activations {
 public:
  Activations(const DecoderSpec& spec, const MicroBatch& batch, const BlockTraining& training,
              bool experts = false)
      : spec_(spec), batch_(batch), training_(training), width_(config::Width(batch.type)) {
    if (experts) experts_ = CountExpertBytes(spec, batch);
  }

  std::int64_t TableGradientTemporaries() const;
  // The distance between two rows of logits (MakeLogits of lm_loss.cc).
  std::int64_t LogitsStride() const {
    return batch_.on_gpu ? (spec_.vocabulary + 7) / 8 * 8 : spec_.vocabulary;
  }
  std::int64_t SoftmaxBytes(std::int64_t rows) const;
  BlockBytes OfEmbedding() const;
  BlockBytes OfLayer(bool recomputes_attention) const;
  BlockBytes OfFrozenLayer() const;  // no earlier parameter is trained, either
  // For a layer that is recomputed in full.
  BlockBytes OfRecomputedLayer() const;
  BlockBytes OfHead() const;

 private:
  // Bytes of `each` values per token, in the activations' dtype.
  std::int64_t Values(std::int64_t each) const { return batch_.tokens() * each * width_; }
  std::int64_t Floats(std::int64_t each) const { return batch_.tokens() * each * kFloatBytes; }
  std::int64_t Hidden() const { return Values(spec_.width); }
  std::int64_t NormNumbers() const { return Floats(spec_.norm == NormKind::kLayer ? 2 : 1); }
  // Attention has all tokens and this rank's heads.
  std::int64_t heads() const { return batch_.own_heads > 0 ? batch_.own_heads : spec_.heads; }
  std::int64_t kv_heads() const {
    return batch_.own_kv_heads > 0 ? batch_.own_kv_heads : spec_.kv_heads;
  }
  std::int64_t attention_tokens() const {
    return batch_.in_ring ? batch_.tokens() : batch_.all_tokens();
  }
  std::int64_t OfHeads(std::int64_t heads) const {
    return attention_tokens() * heads * spec_.head_width * width_;
  }
  bool exchanges() const { return batch_.sequence_ranks > 1 && !batch_.in_ring; }
  bool is_in_ring() const { return batch_.sequence_ranks > 1 && batch_.in_ring; }
  // Latent attention: the up-projected rows. Ring attention holds, in addition to its results: a
  // block of keys and values and the incoming one; a block's result and its factors; in 16 bits,
  // the sums.
  std::int64_t AttentionForwardTemporaries() const;
  // The gradients of results, queries, keys and values, all of one width. A ring also holds the
  // gradients of three blocks in transit, those of the queries, and the incoming gradient.
  std::int64_t AttentionBackwardTemporaries() const;
  std::int64_t RingScores() const {
    const std::int64_t own = batch_.tokens() / batch_.samples;
    return AttendsToBlocksByOperators(spec_, batch_) ? CountTileScores(batch_, heads(), own, own)
                                                     : 0;
  }
  // Of attention over full samples.
  std::int64_t PieceScores() const {
    if (is_in_ring() || chunks_ || !AttendsByOperators(spec_, batch_)) return 0;
    const std::int64_t queries = std::min(sequence_parallel::kPieceQueries, batch_.seq_len);
    // Queries, results and both gradients of a piece, in fp32.
    const std::int64_t rows =
        4 * batch_.samples * queries * heads() * spec_.head_width * kFloatBytes;
    return CountTileScores(batch_, heads(), queries, batch_.seq_len) + rows;
  }
  // The gradients of keys and values that the pieces of attention over full samples add to, in
  // fp32. Operators also hold a piece's gradients, for up to all keys, and a product to add.
  std::int64_t PieceSums() const {
    const std::int64_t sums = 2 * attention_tokens() * kv_heads() * spec_.head_width * kFloatBytes;
    if (is_in_ring() || chunks_) return 0;
    const bool narrow = spec_.window > 0 && spec_.window < batch_.seq_len;
    if (AttendsByOperators(spec_, batch_)) return sums * (width_ < kFloatBytes ? 4 : 3) / 2;
    const bool widens = !batch_.on_gpu && (narrow || HasDistances(spec_));
    return widens && width_ < kFloatBytes ? sums : 0;
  }
  bool is_tiled() const { return tiles() > 1; }
  std::int64_t tiles() const { return std::min(batch_.mlp_tiles, batch_.tokens()); }

  std::int64_t SavedByAttention(bool recomputes) const;
  // A norm's input, if it computes a gradient, and its output, if the next product reads it.
  std::int64_t SavedByNorm(bool computes, BlockComponent reader) const {
    return (computes ? Hidden() + NormNumbers() : 0) +
           (training_.at(reader).reads_input ? Hidden() : 0);
  }
  bool mlp_input() const {
    return training_.of_attention() || training_.trains(BlockComponent::kMixed);
  }
  bool of_widened() const {
    return mlp_input() || training_.trains(BlockComponent::kMlpNorm) ||
           training_.trains(BlockComponent::kWiden);
  }
  // The input and the output of the activation function.
  std::int64_t SavedByMlp() const {
    const int inputs = spec_.gated_mlp ? 2 : 1;
    return (of_widened() ? Values(inputs * spec_.mlp_width) : 0) +
           (training_.at(BlockComponent::kDown).reads_input ? Values(spec_.mlp_width) : 0);
  }
  std::int64_t Wide() const { return Values((spec_.gated_mlp ? 3 : 2) * spec_.mlp_width); }
  bool adapts(BlockComponent part) const { return training_.at(part).adapts; }
  // A fused product of gate and up exists in addition to its two halves.
  std::int64_t WideProduct() const { return spec_.fused_gate_up ? Values(2 * spec_.mlp_width) : 0; }
  std::int64_t WideGradients() const { return Values((spec_.gated_mlp ? 2 : 1) * spec_.mlp_width); }
  // Full weights that a product makes temporarily: dequantized, and for the norms of DoRA.
  std::int64_t TemporaryWeights(BlockComponent part) const {
    const ComponentTraining& product = training_.at(part);
    const bool converts = product.unpacked > 0 || width_ < kFloatBytes;
    return std::max(product.unpacked * width_, product.normed * kFloatBytes * (converts ? 2 : 1));
  }
  // The inputs of DoRA's multiplication are kept.
  std::int64_t SavedByScales(BlockComponent part) const {
    return Values(training_.at(part).scaled);
  }
  std::int64_t SavedByLayer(bool recomputes_attention) const;
  // The products' inputs of the forward pass, and the gradients of their outputs.
  std::int64_t DelayedByAttention() const {
    if (spec_.qkv == QkvLayout::kLatent) {
      const LatentValues latent = CountLatentValues(spec_);
      return Values(latent.delayed + latent.mixed) + Hidden();
    }
    const std::int64_t query = QueryWidth(spec_), made = query + 2 * KeyWidth(spec_);
    return (training_.trains(BlockComponent::kProjection) ? Hidden() + Values(made) : 0) +
           (training_.trains(BlockComponent::kMixed) ? Values(query) + Hidden() : 0);
  }
  std::int64_t DelayedByMlp() const { return (experts_ ? experts_->delayed : 0) + Delayed(); }
  std::int64_t Delayed() const {
    return (training_.trains(BlockComponent::kWiden) ? Hidden() + WideGradients() : 0) +
           (training_.trains(BlockComponent::kDown) ? Values(spec_.mlp_width) + Hidden() : 0);
  }
  std::int64_t MlpForwardTemporaries() const;
  std::int64_t MlpBackwardTemporaries() const;

  const DecoderSpec& spec_;
  const MicroBatch& batch_;
  const BlockTraining& training_;
  const std::int64_t width_;
  std::optional<ExpertBytes> experts_;  // in a layer with experts
  const std::optional<ChunkedAttentionBytes> chunks_ = CountChunkedAttentionBytes(spec_, batch_);
};

// The norm's input and output, queries, keys, values, and the attention results.
std::int64_t Activations::SavedByAttention(bool recomputes) const {
  const std::int64_t query = QueryWidth(spec_), key = KeyWidth(spec_);
  const bool computes = training_.input || training_.trains(BlockComponent::kInputNorm);
  const std::int64_t norm = SavedByNorm(computes, BlockComponent::kProjection);
  if (chunks_) {  // chunks_ includes the norm's output
    return (computes ? Hidden() + NormNumbers() : 0) + chunks_->SavedBytes(recomputes);
  }
  if (spec_.qkv == QkvLayout::kLatent) {
    const LatentValues latent = CountLatentValues(spec_);
    return norm + Values(latent.narrow + latent.SavedByHeads(recomputes)) +
           Floats(latent.norms + (recomputes ? 0 : spec_.heads));
  }
  if (!training_.of_attention()) {
    return norm + (training_.at(BlockComponent::kMixed).reads_input ? Values(query) : 0);
  }
  std::int64_t saved = norm + Values(query) + OfHeads(heads()) + 2 * OfHeads(kv_heads()) +
                       SavedByScales(BlockComponent::kProjection) +
                       SavedByScales(BlockComponent::kMixed);
  // RoPE copies Q and K, while V keeps the fused product alive; exchanged tensors do not.
  if (spec_.qkv != QkvLayout::kApart && spec_.positions == Positions::kRotary && !exchanges()) {
    saved += Values(query + key);
  }
  if (spec_.query_key_norm != QueryKeyNorm::kNone) {
    saved += Values(query + key) + Floats(spec_.heads + spec_.kv_heads);
  }
  if (recomputes) return saved;
  // The attention result is itself the input of the next product, unless it is exchanged.
  if (exchanges()) saved += OfHeads(heads());
  // The sum of weights of each row.
  return saved + attention_tokens() * heads() * kFloatBytes;
}

std::int64_t Activations::AttentionForwardTemporaries() const {
  if (chunks_) return chunks_->forward;
  if (spec_.qkv == QkvLayout::kLatent) return Values(CountLatentValues(spec_).wide) + Hidden();
  if (!is_in_ring()) return 0;
  const std::int64_t sums = width_ < kFloatBytes ? Floats(QueryWidth(spec_)) : 0;
  return 4 * OfHeads(kv_heads()) + Values(QueryWidth(spec_)) + Floats(QueryWidth(spec_)) + sums +
         RingScores();
}

std::int64_t Activations::AttentionBackwardTemporaries() const {
  if (chunks_) return chunks_->backward;
  if (spec_.qkv == QkvLayout::kLatent) return Values(4 * CountLatentValues(spec_).heads);
  if (!is_in_ring()) return 0;
  return 6 * OfHeads(kv_heads()) + 6 * Floats(KeyWidth(spec_)) + Floats(QueryWidth(spec_)) +
         2 * Values(QueryWidth(spec_)) + RingScores();
}

// Counts norms, the activation function and the inputs of adapters' second matrices. A tiled MLP
// keeps only the rows of the norm's output.
std::int64_t Activations::SavedByLayer(bool recomputes_attention) const {
  const std::int64_t factors = spec_.residual_dropout > 0.0 ? (chunks_ ? 1 : 2) * Hidden() : 0;
  const bool computes = mlp_input() || training_.trains(BlockComponent::kMlpNorm);
  const std::int64_t norm = SavedByNorm(computes, BlockComponent::kWiden);
  const std::int64_t wide = experts_ ? experts_->saved : SavedByMlp();
  const std::int64_t mlp = is_tiled() ? Hidden() + NormNumbers() + Hidden() : norm + wide;
  const std::int64_t scaled =
      SavedByScales(BlockComponent::kWiden) + SavedByScales(BlockComponent::kDown);
  // The adapters' inputs before dropout, and the dropout factors.
  const std::int64_t adapters = Values(training_.ranks + 2 * training_.dropped);
  return SavedByAttention(recomputes_attention) + mlp + factors + adapters + scaled;
}

// Counts the MLP's output and the sum; for tiles, all results and either one tile or their copy. An
// adapter's result is held next to the product's.
std::int64_t Activations::MlpForwardTemporaries() const {
  if (experts_) return experts_->temporaries;
  if (!is_tiled()) {
    const std::int64_t adapter = adapts(BlockComponent::kWiden) ? Values(spec_.mlp_width) : 0;
    return std::max({(adapts(BlockComponent::kDown) ? 3 : 2) * Hidden(), WideProduct(), adapter});
  }
  return Hidden() + std::max((Wide() + WideProduct()) / tiles(), Hidden());
}

// The incoming gradient, and the gradient of the last product's input. A tile is recomputed while
// the gradients of the later ones are held.
std::int64_t Activations::MlpBackwardTemporaries() const {
  if (experts_) return Hidden() + experts_->temporaries;
  const std::int64_t adapter = adapts(BlockComponent::kDown) ? Values(2 * spec_.mlp_width) : 0;
  if (!is_tiled()) return Hidden() + std::max(WideGradients(), adapter);
  return 2 * Hidden() + std::max((Wide() + WideGradients()) / tiles(), Hidden());
}

BlockBytes Activations::OfFrozenLayer() const {
  const std::int64_t mlp = 3 * Hidden() + Wide() + WideProduct();
  const std::int64_t heads = Values(2 * QueryWidth(spec_) + 2 * KeyWidth(spec_)) + 3 * Hidden();
  return {.forward = std::max(mlp, heads + PieceScores())};
}

BlockBytes Activations::OfLayer(bool recomputes_attention) const {
  if (!training_.of_block()) return OfFrozenLayer();
  const std::int64_t saved = SavedByLayer(recomputes_attention);
  const std::int64_t attention = SavedByAttention(/*recomputes=*/false);
  const std::int64_t delayed = DelayedByAttention() + DelayedByMlp();
  const std::int64_t down = TemporaryWeights(BlockComponent::kDown);
  const std::int64_t unpacked = training_.at(BlockComponent::kDown).unpacked * width_;
  return {.saved = saved,
          .forward = std::max({saved + MlpForwardTemporaries(),
                               attention + PieceScores() + AttentionForwardTemporaries(),
                               down > 0 ? saved + Hidden() + down : 0}),
          .backward = std::max(
              {saved + MlpBackwardTemporaries(),
               attention + std::max(PieceScores() + PieceSums(), AttentionBackwardTemporaries()) +
                   2 * Hidden(),
               saved + Hidden() + Values(spec_.mlp_width) + unpacked}),
          .delayed = delayed,
          .delaying =
              std::max(delayed + 2 * Hidden(),
                       DelayedByMlp() + attention +
                           std::max(PieceScores() + PieceSums(), AttentionBackwardTemporaries()) +
                           2 * Hidden())};
}

BlockBytes Activations::OfRecomputedLayer() const {
  const BlockBytes again = OfLayer(/*recomputes_attention=*/false);
  const std::int64_t mlp =
      experts_ ? 2 * Hidden() + experts_->passing + experts_->temporaries
               : 3 * Hidden() + (Wide() + WideProduct()) / (is_tiled() ? tiles() : 1);
  const bool splits = batch_.keeps_parts && batch_.tensor_ranks > 1;
  const std::int64_t part = splits ? Hidden() / batch_.tensor_ranks : 0;
  return {.saved = !training_.of_block() ? 0
                   : splits              ? part
                                         : Hidden(),
          .forward = std::max(mlp, SavedByAttention(/*recomputes=*/false) +
                                       AttentionForwardTemporaries()) +
                     Hidden(),
          .backward = again.backward + Hidden() + part,
          .delayed = again.delayed,
          .delaying = again.delaying + 3 * Hidden() + part};
}

// The memory for adding the gradients of rows to a table's gradient. On the CPU this is done in
// place, in 16 bits from fp32 sums of the incoming rows; on a GPU, in a table of its own.
std::int64_t Activations::TableGradientTemporaries() const {
  constexpr std::int64_t kRowsAtOnce = 1024;  // of LookUp
  const std::int64_t all = std::max(spec_.vocabulary, CountPositions(spec_));
  if (batch_.on_gpu) return all * spec_.width * width_;
  if (batch_.type == config::DataType::kFp32) return 0;
  const std::int64_t sums = std::min(batch_.tokens(), all) * spec_.width * kFloatBytes;
  const std::int64_t widened = std::min(batch_.tokens(), kRowsAtOnce) * spec_.width * kFloatBytes;
  return sums + std::max(widened, sums / 2);
}

BlockBytes Activations::OfEmbedding() const {
  const bool computes = training_.of_block();
  const std::int64_t factors = computes && spec_.embedding_dropout > 0.0 ? Hidden() : 0;
  const std::int64_t norm = computes && spec_.embedding_norm ? Hidden() + NormNumbers() : 0;
  const std::int64_t sum = CountPositions(spec_) > 0 ? Hidden() : 0;
  const std::int64_t table =
      training_.trains(BlockComponent::kTable) ? TableGradientTemporaries() : 0;
  return {.saved = factors + norm,
          .forward = Hidden() + std::max(sum, norm) + 2 * factors,
          .backward = factors + norm + Hidden() + table,
          .delayed = training_.trains(BlockComponent::kTable) ? Hidden() : 0,
          .delaying = factors + norm + Hidden() + table};
}

// Counts the temporaries of LmLoss for `rows` rows of logits. Parts of a vocabulary are processed
// in fp32. On a GPU, LibTorch's log_softmax copies bf16 to fp32, and copies rows of other types
// that are not contiguous.
std::int64_t Activations::SoftmaxBytes(std::int64_t rows) const {
  const std::int64_t values = rows * spec_.vocabulary, floats = values * kFloatBytes;
  if (batch_.tensor_ranks > 1) return batch_.on_gpu || width_ < kFloatBytes ? floats : 0;
  if (!batch_.on_gpu) return 0;
  if (batch_.type == config::DataType::kBf16) return 2 * floats;
  return floats + (LogitsStride() > spec_.vocabulary ? values * width_ : 0);
}

BlockBytes Activations::OfHead() const {
  constexpr std::int64_t kChunkBytes = std::int64_t{64} << 20, kLeastRows = 64;  // of LmLoss
  const std::int64_t row = spec_.vocabulary * width_;
  const std::int64_t rows = std::min(batch_.tokens(), std::max(kLeastRows, kChunkBytes / row));
  const bool trains = training_.trains(BlockComponent::kTable);
  const std::int64_t matrix = trains ? spec_.vocabulary * spec_.width : 0;
  // 16-bit gradients are accumulated in fp32: from a product in 16 bits, or by tiles.
  const bool copies = width_ < kFloatBytes && !batch_.multiplied_in_fp32;
  const std::int64_t copy = copies ? matrix * width_ : 0;
  const std::int64_t tiles = CountWidenedTiles(batch_, spec_.width, spec_.vocabulary);
  const std::int64_t logits = rows * LogitsStride() * width_, softmax = SoftmaxBytes(rows);
  // The matrix's gradient is allocated with the product of the first rows, after their softmax.
  const std::int64_t gradient = matrix * kFloatBytes;
  const std::int64_t earlier = rows < batch_.tokens() ? gradient : 0;
  const std::int64_t temporaries =
      std::max(gradient + copy + tiles, std::max(softmax, tiles) + earlier);
  const std::int64_t norm = Hidden() + NormNumbers();
  const std::int64_t saved = norm + Hidden() + matrix * width_;
  return {.saved = saved,
          .forward = norm + 2 * Hidden() + Floats(1) + logits + temporaries,
          .backward = saved + Hidden(),
          .delayed = matrix * width_,
          .delaying = saved + Hidden()};
}

// The input, which is kept, and the output have all tokens; the layer itself has only the tokens it
// keeps. A recomputed layer also selects its tokens again.
template <typename OfLayer>
BlockBytes OfDroppingLayer(const DecoderSpec& spec, const MicroBatch& batch, bool is_recomputed,
                           OfLayer of_layer) {
  MicroBatch seen = batch;
  seen.seq_len = batch.kept_tokens;
  const std::int64_t width = spec.width * config::Width(batch.type);
  const std::int64_t all = batch.tokens() * width, saved = seen.tokens() * width;
  const std::int64_t index_bytes =
      2 * seen.tokens() * static_cast<std::int64_t>(sizeof(std::int64_t));
  BlockBytes block = of_layer(seen);
  block.forward = std::max(block.forward + all, block.saved + saved + 2 * all) + index_bytes;
  block.backward += 2 * all + index_bytes;
  block.delaying += 2 * all + index_bytes;
  block.saved = (is_recomputed ? 0 : block.saved) + all + index_bytes;
  return block;
}

}  // namespace

std::vector<BlockBytes> ListBlockBytes(const DecoderSpec& spec, const MicroBatch& batch,
                                       const config::RecomputeChoice& recompute) {
  const std::vector<BlockTraining> all(static_cast<std::size_t>(spec.layers) + 2);
  return ListBlockBytes(spec, batch, recompute, all);
}

std::vector<BlockBytes> ListBlockBytes(const DecoderSpec& spec, const MicroBatch& batch,
                                       const config::RecomputeChoice& recompute,
                                       const std::vector<BlockTraining>& training) {
  const bool attention = recompute.kind == config::RecomputeChoice::Kind::kAttention;
  const int count = static_cast<int>(spec.layers) + 2;
  std::vector<BlockBytes> blocks = {Activations(spec, batch, training.front()).OfEmbedding()};
  std::size_t with_experts = 0;
  for (int i = 1; i + 1 < count; ++i) {
    const bool again = config::IsRecomputed(recompute, i, count);
    MicroBatch own = batch;
    if (spec.HasExperts(i - 1) && with_experts < batch.layer_loads.size()) {
      own.expert_load = batch.layer_loads[with_experts++];
    }
    const auto of_layer = [&](const MicroBatch& seen) {
      const Activations made(spec, seen, training[static_cast<std::size_t>(i)],
                             spec.HasExperts(i - 1));
      return again ? made.OfRecomputedLayer() : made.OfLayer(attention);
    };
    blocks.push_back(batch.DropsIn(i - 1) ? OfDroppingLayer(spec, own, again, of_layer)
                                          : of_layer(own));
  }
  blocks.push_back(Activations(spec, batch, training.back()).OfHead());
  for (int i = 0; i < count; ++i) {
    BlockBytes& block = blocks[static_cast<std::size_t>(i)];
    const bool is_layer = i > 0 && i + 1 < count;
    const std::int64_t tiles = is_layer ? CountWidenedTiles(batch, spec.width, spec.mlp_width) : 0;
    const std::int64_t scratch = CountProductScratch(batch) + tiles;
    block.forward += scratch;
    block.backward += scratch;
    block.delaying += scratch;
  }
  return blocks;
}

LatentValues CountLatentValues(const DecoderSpec& spec) {
  const std::int64_t turned = TurnedWidth(spec), of_queries = spec.query_latent_width;
  LatentValues values{.heads = spec.heads * spec.head_width,
                      .mixed = spec.heads * spec.value_width};
  values.wide = values.heads - spec.heads * turned + values.mixed;
  values.narrow = 2 * (spec.latent_width + of_queries);
  values.norms = of_queries > 0 ? 2 : 1;
  // The input and the output of each product.
  values.delayed = spec.width + 2 * of_queries + values.heads + spec.latent_width + turned +
                   spec.latent_width + values.wide;
  return values;
}

}  // namespace ds::models
