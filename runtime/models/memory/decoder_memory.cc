#include "runtime/models/memory/decoder_memory.h"

#include <algorithm>

#include "runtime/config/model_state.h"

namespace ds::models {
namespace {

constexpr std::int64_t kFloatBytes = 4;

// Sums up the parameters of a block.
class ParameterList {
 public:
  void AddMatrix(std::int64_t rows, std::int64_t columns, bool bias = false) {
    block_.numels.push_back(rows * columns);
    block_.matrices += rows * columns;
    if (bias) AddVector(rows);
  }
  void AddVector(std::int64_t numel) { block_.numels.push_back(numel); }
  void AddNorm(const DecoderShape& shape) {
    AddVector(shape.width);
    if (shape.layer_norms) AddVector(shape.width);
  }
  BlockSizes Take(std::vector<int> also_reads = {}) {
    block_.also_reads = std::move(also_reads);
    return std::move(block_);
  }

 private:
  BlockSizes block_;
};

BlockSizes ListLayer(const DecoderShape& shape) {
  ParameterList list;
  list.AddNorm(shape);
  list.AddMatrix(shape.query_width(), shape.width, shape.qkv_bias);
  for (int i = 0; i < 2; ++i) list.AddMatrix(shape.key_width(), shape.width, shape.qkv_bias);
  if (shape.query_key_norms) {
    for (int i = 0; i < 2; ++i) list.AddVector(shape.head_width);
  }
  list.AddMatrix(shape.width, shape.query_width(), shape.output_bias);
  list.AddNorm(shape);
  for (int i = 0; i < (shape.gated_mlp ? 2 : 1); ++i) {
    list.AddMatrix(shape.mlp_width, shape.width, shape.mlp_bias);
  }
  list.AddMatrix(shape.width, shape.mlp_width, shape.mlp_bias);
  return list.Take();
}

// Bytes of a micro-batch's activations in blocks of one shape.
class Activations {
 public:
  Activations(const DecoderShape& shape, const MicroBatch& batch)
      : shape_(shape), batch_(batch), width_(config::Width(batch.type)) {}

  BlockBytes OfEmbedding() const;
  BlockBytes OfLayer(bool recomputes_attention) const;
  // Of a layer that is computed again as a whole.
  BlockBytes OfRecomputedLayer() const;
  BlockBytes OfHead() const;

 private:
  // Of so many values for each token, as activations are.
  std::int64_t Values(std::int64_t each) const { return batch_.tokens() * each * width_; }
  std::int64_t Floats(std::int64_t each) const { return batch_.tokens() * each * kFloatBytes; }
  std::int64_t Hidden() const { return Values(shape_.width); }
  std::int64_t NormNumbers() const { return Floats(shape_.layer_norms ? 2 : 1); }
  // One matrix of attention weights for each head.
  std::int64_t Weights() const { return batch_.tokens() * batch_.seq_len * shape_.heads; }
  bool drops_weights() const { return shape_.attention_dropout > 0.0; }

  std::int64_t KeptByAttention(bool recomputes) const;
  std::int64_t KeptByMlp() const;
  std::int64_t KeptByLayer(bool recomputes_attention) const;
  std::int64_t BackwardBeside() const;

  const DecoderShape& shape_;
  const MicroBatch& batch_;
  const std::int64_t width_;
};

// The norm's input and output, queries, keys, values, and what the weights have mixed.
std::int64_t Activations::KeptByAttention(bool recomputes) const {
  const std::int64_t query = shape_.query_width(), key = shape_.key_width();
  std::int64_t kept = 2 * Hidden() + NormNumbers() + Values(2 * query + 2 * key);
  if (shape_.query_key_norms) {
    kept += Values(query + key) + Floats(shape_.heads + shape_.kv_heads);
  }
  if (recomputes) return kept;
  if (!drops_weights()) return kept + Floats(shape_.heads);  // the sum of each row's weights
  // The softmax, what it is multiplied by, and the product; keys and values for each query head.
  const bool shares = shape_.kv_heads != shape_.heads;
  return kept + Weights() * (kFloatBytes + 2 * width_) + (shares ? Values(2 * query) : 0);
}

// The norm's input and output, what goes into the activation and what comes out.
std::int64_t Activations::KeptByMlp() const {
  return 2 * Hidden() + NormNumbers() + Values((shape_.gated_mlp ? 3 : 2) * shape_.mlp_width);
}

std::int64_t Activations::KeptByLayer(bool recomputes_attention) const {
  const std::int64_t factors = shape_.residual_dropout > 0.0 ? 2 * Hidden() : 0;
  return KeptByAttention(recomputes_attention) + KeptByMlp() + factors;
}

// What comes from above, and the gradients of what the last product was given.
std::int64_t Activations::BackwardBeside() const {
  return Hidden() + Values((shape_.gated_mlp ? 2 : 1) * shape_.mlp_width);
}

BlockBytes Activations::OfLayer(bool recomputes_attention) const {
  const std::int64_t kept = KeptByLayer(recomputes_attention);
  const std::int64_t attention = KeptByAttention(/*recomputes=*/false);
  const std::int64_t weights = drops_weights() ? 2 * Weights() * kFloatBytes : 0;
  return {.kept = kept,
          .forward = std::max(kept + 2 * Hidden(), attention + weights),
          .backward = std::max(kept + BackwardBeside(), attention + weights + 2 * Hidden())};
}

BlockBytes Activations::OfRecomputedLayer() const {
  const BlockBytes again = OfLayer(/*recomputes_attention=*/false);
  const std::int64_t mlp = 3 * Hidden() + Values((shape_.gated_mlp ? 3 : 2) * shape_.mlp_width);
  return {.kept = Hidden(),
          .forward = std::max(mlp, KeptByAttention(/*recomputes=*/false)) + Hidden(),
          .backward = again.backward + Hidden()};
}

BlockBytes Activations::OfEmbedding() const {
  const std::int64_t factors = shape_.embedding_dropout > 0.0 ? Hidden() : 0;
  const std::int64_t sum = shape_.learned_positions > 0 ? Hidden() : 0;
  // Elsewhere, and in 16 bits, the rows' gradients are added up in a table of their own.
  const bool in_place = batch_.type == config::DataType::kFp32 && !batch_.on_gpu;
  const std::int64_t table =
      in_place ? 0 : std::max(shape_.vocabulary, shape_.learned_positions) * shape_.width * width_;
  return {.kept = factors,
          .forward = Hidden() + sum + 2 * factors,
          .backward = factors + Hidden() + table};
}

BlockBytes Activations::OfHead() const {
  constexpr std::int64_t kChunkBytes = std::int64_t{64} << 20, kLeastRows = 64;  // of LmLoss
  const std::int64_t row = shape_.vocabulary * width_;
  const std::int64_t rows = std::min(batch_.tokens(), std::max(kLeastRows, kChunkBytes / row));
  const std::int64_t matrix = shape_.vocabulary * shape_.width;
  // 16-bit gradients are added up in fp32.
  const std::int64_t copy = width_ < kFloatBytes ? matrix * width_ : 0;
  const std::int64_t softmax = batch_.on_gpu ? rows * shape_.vocabulary * kFloatBytes : 0;
  const std::int64_t norm = Hidden() + NormNumbers();
  const std::int64_t kept = norm + Hidden() + matrix * width_;
  return {.kept = kept,
          .forward =
              norm + 2 * Hidden() + Floats(1) + matrix * kFloatBytes + copy + rows * row + softmax,
          .backward = kept + Hidden()};
}

}  // namespace

std::vector<BlockSizes> ListBlockSizes(const DecoderShape& shape) {
  ParameterList embedding, head;
  embedding.AddMatrix(shape.vocabulary, shape.width);
  if (shape.learned_positions > 0) embedding.AddMatrix(shape.learned_positions, shape.width);
  std::vector<BlockSizes> blocks = {embedding.Take()};
  blocks.insert(blocks.end(), static_cast<std::size_t>(shape.layers), ListLayer(shape));
  head.AddNorm(shape);
  if (!shape.tied_head) head.AddMatrix(shape.vocabulary, shape.width);
  blocks.push_back(head.Take(shape.tied_head ? std::vector<int>{0} : std::vector<int>{}));
  return blocks;
}

std::vector<BlockBytes> ListBlockBytes(const DecoderShape& shape, const MicroBatch& batch,
                                       const config::RecomputeChoice& recompute) {
  const Activations made(shape, batch);
  const bool attention = recompute.kind == config::RecomputeChoice::Kind::kAttention;
  const int count = static_cast<int>(shape.layers) + 2;
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
