#include "runtime/models/memory/decoder_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/config/model_state.h"

namespace ds::models {
namespace {

constexpr std::int64_t kFloatBytes = 4;

std::int64_t QueryWidth(const DecoderSpec& spec) { return spec.heads * spec.head_width; }
std::int64_t KeyWidth(const DecoderSpec& spec) { return spec.kv_heads * spec.head_width; }

// Sums up the parameters of a block.
class ParameterList {
 public:
  explicit ParameterList(const DecoderSpec& spec) : spec_(spec) {}

  void AddMatrix(std::int64_t rows, std::int64_t columns, bool bias = false) {
    block_.numels.push_back(rows * columns);
    block_.matrices += rows * columns;
    if (bias) block_.numels.push_back(rows);
  }
  void AddNorms(int count, std::int64_t width) {
    const int vectors = spec_.norm == NormKind::kLayer ? 2 : 1;
    block_.numels.insert(block_.numels.end(), static_cast<std::size_t>(count * vectors), width);
  }
  void AddVector(std::int64_t numel) { block_.numels.push_back(numel); }
  BlockSizes Take() { return std::move(block_); }

 private:
  const DecoderSpec& spec_;
  BlockSizes block_;
};

int CountNorms(const DecoderSpec& spec) {
  if (spec.residual == Residual::kParallelOneNorm) return 1;
  return spec.norm_place == NormPlace::kAround ? 4 : 2;
}

BlockSizes ListLayer(const DecoderSpec& spec) {
  ParameterList list(spec);
  const std::int64_t query = QueryWidth(spec), key = KeyWidth(spec);
  list.AddNorms(CountNorms(spec), spec.width);
  if (spec.qkv == QkvLayout::kApart) {
    list.AddMatrix(query, spec.width, spec.qkv_bias);
    for (int i = 0; i < 2; ++i) list.AddMatrix(key, spec.width, spec.qkv_bias);
  } else {
    list.AddMatrix(query + 2 * key, spec.width, spec.qkv_bias);
  }
  list.AddMatrix(spec.width, query, spec.attention_output_bias);
  if (spec.query_key_norm != QueryKeyNorm::kNone) {
    const bool per_head = spec.query_key_norm == QueryKeyNorm::kPerHead;
    list.AddVector(per_head ? spec.head_width : query);
    list.AddVector(per_head ? spec.head_width : key);
  }
  const bool two = spec.gated_mlp && !spec.fused_gate_up;
  for (int i = 0; i < (two ? 2 : 1); ++i) {
    list.AddMatrix(spec.fused_gate_up ? 2 * spec.mlp_width : spec.mlp_width, spec.width,
                   spec.mlp_bias);
  }
  list.AddMatrix(spec.width, spec.mlp_width, spec.mlp_bias);
  return list.Take();
}

std::int64_t LearnedPositions(const DecoderSpec& spec) {
  return spec.positions == Positions::kLearned ? spec.max_positions + spec.first_position : 0;
}

BlockSizes ListEmbedding(const DecoderSpec& spec) {
  ParameterList list(spec);
  list.AddMatrix(spec.vocabulary, spec.width);
  if (LearnedPositions(spec) > 0) list.AddMatrix(LearnedPositions(spec), spec.width);
  if (spec.embedding_norm) list.AddNorms(1, spec.width);
  BlockSizes sizes = list.Take();
  sizes.backward_reads = spec.embedding_norm;
  return sizes;
}

BlockSizes ListHead(const DecoderSpec& spec) {
  ParameterList list(spec);
  if (spec.final_norm) list.AddNorms(1, spec.width);
  if (!spec.tied_head) list.AddMatrix(spec.vocabulary, spec.width);
  BlockSizes sizes = list.Take();
  if (spec.tied_head) sizes.also_reads = {0};
  return sizes;
}

// Bytes of a micro-batch's activations in blocks of one shape.
class Activations {
 public:
  Activations(const DecoderSpec& spec, const MicroBatch& batch)
      : spec_(spec), batch_(batch), width_(config::Width(batch.type)) {}

  BlockBytes OfEmbedding() const;
  BlockBytes OfLayer(bool recomputes_attention) const;
  // Of a layer that is computed again as a whole.
  BlockBytes OfRecomputedLayer() const;
  BlockBytes OfHead() const;

 private:
  // Of so many values for each token, as activations are.
  std::int64_t Values(std::int64_t each) const { return batch_.tokens() * each * width_; }
  std::int64_t Floats(std::int64_t each) const { return batch_.tokens() * each * kFloatBytes; }
  std::int64_t Hidden() const { return Values(spec_.width); }
  std::int64_t NormNumbers() const { return Floats(spec_.norm == NormKind::kLayer ? 2 : 1); }
  // One matrix of attention weights for each head.
  std::int64_t Weights() const { return batch_.tokens() * batch_.seq_len * spec_.heads; }
  bool drops_weights() const { return spec_.attention_dropout > 0.0; }
  bool is_tiled() const { return tiles() > 1; }
  std::int64_t tiles() const { return std::min(batch_.mlp_tiles, batch_.tokens()); }

  std::int64_t KeptByAttention(bool recomputes) const;
  std::int64_t NormOfMlp() const { return 2 * Hidden() + NormNumbers(); }
  std::int64_t Wide() const { return Values((spec_.gated_mlp ? 3 : 2) * spec_.mlp_width); }
  std::int64_t WideGradients() const { return Values((spec_.gated_mlp ? 2 : 1) * spec_.mlp_width); }
  std::int64_t KeptByLayer(bool recomputes_attention) const;
  std::int64_t MlpForwardBeside() const;
  std::int64_t MlpBackwardBeside() const;

  const DecoderSpec& spec_;
  const MicroBatch& batch_;
  const std::int64_t width_;
};

// The norm's input and output, queries, keys, values, and what the weights have mixed.
std::int64_t Activations::KeptByAttention(bool recomputes) const {
  const std::int64_t query = QueryWidth(spec_), key = KeyWidth(spec_);
  std::int64_t kept = 2 * Hidden() + NormNumbers() + Values(2 * query + 2 * key);
  if (spec_.query_key_norm != QueryKeyNorm::kNone) {
    kept += Values(query + key) + Floats(spec_.heads + spec_.kv_heads);
  }
  if (recomputes) return kept;
  if (!drops_weights()) return kept + Floats(spec_.heads);  // the sum of each row's weights
  // The softmax, what it is multiplied by, and the product; keys and values for each query head.
  const bool shares = spec_.kv_heads != spec_.heads;
  return kept + Weights() * (kFloatBytes + 2 * width_) + (shares ? Values(2 * query) : 0);
}

// The norms' inputs and outputs, what goes into the activation and what comes out. Tiles of the MLP
// keep their rows of the norm's output alone.
std::int64_t Activations::KeptByLayer(bool recomputes_attention) const {
  const std::int64_t factors = spec_.residual_dropout > 0.0 ? 2 * Hidden() : 0;
  return KeptByAttention(recomputes_attention) + NormOfMlp() + (is_tiled() ? 0 : Wide()) + factors;
}

// What the MLP makes, and the sum; of tiles, all results beside one tile, or their copy.
std::int64_t Activations::MlpForwardBeside() const {
  return is_tiled() ? Hidden() + std::max(Wide() / tiles(), Hidden()) : 2 * Hidden();
}

// What comes from above, and the gradients of what the last product was given. A tile is there
// again beside the gradients of those behind it.
std::int64_t Activations::MlpBackwardBeside() const {
  if (!is_tiled()) return Hidden() + WideGradients();
  return 2 * Hidden() + std::max((Wide() + WideGradients()) / tiles(), Hidden());
}

BlockBytes Activations::OfLayer(bool recomputes_attention) const {
  const std::int64_t kept = KeptByLayer(recomputes_attention);
  const std::int64_t attention = KeptByAttention(/*recomputes=*/false);
  const std::int64_t weights = drops_weights() ? 2 * Weights() * kFloatBytes : 0;
  return {.kept = kept,
          .forward = std::max(kept + MlpForwardBeside(), attention + weights),
          .backward = std::max(kept + MlpBackwardBeside(), attention + weights + 2 * Hidden())};
}

BlockBytes Activations::OfRecomputedLayer() const {
  const BlockBytes again = OfLayer(/*recomputes_attention=*/false);
  const std::int64_t mlp = 3 * Hidden() + (is_tiled() ? Wide() / tiles() : Wide());
  return {.kept = Hidden(),
          .forward = std::max(mlp, KeptByAttention(/*recomputes=*/false)) + Hidden(),
          .backward = again.backward + Hidden()};
}

BlockBytes Activations::OfEmbedding() const {
  const std::int64_t factors = spec_.embedding_dropout > 0.0 ? Hidden() : 0;
  const std::int64_t sum = LearnedPositions(spec_) > 0 ? Hidden() : 0;
  // Elsewhere, and in 16 bits, the rows' gradients are added up in a table of their own.
  const bool in_place = batch_.type == config::DataType::kFp32 && !batch_.on_gpu;
  const std::int64_t table =
      in_place ? 0 : std::max(spec_.vocabulary, LearnedPositions(spec_)) * spec_.width * width_;
  return {.kept = factors,
          .forward = Hidden() + sum + 2 * factors,
          .backward = factors + Hidden() + table};
}

BlockBytes Activations::OfHead() const {
  constexpr std::int64_t kChunkBytes = std::int64_t{64} << 20, kLeastRows = 64;  // of LmLoss
  const std::int64_t row = spec_.vocabulary * width_;
  const std::int64_t rows = std::min(batch_.tokens(), std::max(kLeastRows, kChunkBytes / row));
  const std::int64_t matrix = spec_.vocabulary * spec_.width;
  // 16-bit gradients are added up in fp32.
  const std::int64_t copy = width_ < kFloatBytes ? matrix * width_ : 0;
  const std::int64_t softmax = batch_.on_gpu ? rows * spec_.vocabulary * kFloatBytes : 0;
  const std::int64_t norm = Hidden() + NormNumbers();
  const std::int64_t kept = norm + Hidden() + matrix * width_;
  return {.kept = kept,
          .forward =
              norm + 2 * Hidden() + Floats(1) + matrix * kFloatBytes + copy + rows * row + softmax,
          .backward = kept + Hidden()};
}

}  // namespace

Status CheckMemoryIsKnown(const DecoderSpec& spec) {
  const bool gelu =
      spec.activation == Activation::kGeluTanh || spec.activation == Activation::kGeluErf;
  const std::pair<bool, const char*> unknown[] = {
      {spec.experts > 0, "experts"},
      {spec.norm_place != NormPlace::kBefore || !spec.final_norm || spec.embedding_norm,
       "norms at these places"},
      {spec.residual != Residual::kInTurn, "attention and MLP side by side"},
      {spec.qkv != QkvLayout::kApart && spec.positions != Positions::kLearned,
       "queries, keys and values of one matrix that are turned"},
      {spec.positions != Positions::kLearned && spec.positions != Positions::kRotary,
       "attention with distances"},
      {spec.window > 0, "attention with a window"},
      {spec.attention_soft_cap != 0.0 || spec.logit_soft_cap != 0.0, "soft caps"},
      {spec.query_key_norm == QueryKeyNorm::kWhole, "norms of whole queries"},
      {spec.fused_gate_up, "a gate that shares its matrix"},
      {spec.scales_embedding, "embeddings that are scaled"},
      {spec.gated_mlp ? spec.activation != Activation::kSilu : !gelu, "an MLP of this kind"},
  };
  for (const auto& [present, what] : unknown) {
    if (!present) continue;
    return UnimplementedError("what a model of type '" + spec.model_type +
                              "' keeps of a micro-batch is not known: it has " + what);
  }
  return OkStatus();
}

std::vector<BlockSizes> ListBlockSizes(const DecoderSpec& spec) {
  std::vector<BlockSizes> blocks = {ListEmbedding(spec)};
  blocks.insert(blocks.end(), static_cast<std::size_t>(spec.layers), ListLayer(spec));
  blocks.push_back(ListHead(spec));
  return blocks;
}

std::vector<BlockBytes> ListBlockBytes(const DecoderSpec& spec, const MicroBatch& batch,
                                       const config::RecomputeChoice& recompute) {
  const Activations made(spec, batch);
  const bool attention = recompute.kind == config::RecomputeChoice::Kind::kAttention;
  const int count = static_cast<int>(spec.layers) + 2;
  std::vector<BlockBytes> blocks = {made.OfEmbedding()};
  for (int i = 1; i + 1 < count; ++i) {
    blocks.push_back(config::IsRecomputed(recompute, i, count) ? made.OfRecomputedLayer()
                                                               : made.OfLayer(attention));
  }
  blocks.push_back(made.OfHead());
  for (BlockBytes& block : blocks) {
    if (batch.on_gpu) break;
    block.forward += kProductScratch;
    block.backward += kProductScratch;
  }
  return blocks;
}

}  // namespace ds::models
