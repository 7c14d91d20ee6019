#include "runtime/plan/model/count_parameters.h"

#include <algorithm>

namespace ds::models {
namespace {

constexpr std::int64_t kMostParameters = 1'000'000'000'000'000;
constexpr std::int64_t kMostLayers = 1'000'000;

// Sums up modules, and detects counts that are too large.
class ModuleSum {
 public:
  // Adds `times` modules with a weight of `rows` x `columns`, and optionally a bias of `rows`.
  void Add(std::int64_t times, std::int64_t rows, std::int64_t columns, bool bias = false) {
    std::int64_t module = 0;
    if (bias) columns += 1;
    const bool fits = !__builtin_mul_overflow(rows, columns, &module) &&
                      module <= kMostParameters && !__builtin_mul_overflow(module, times, &times) &&
                      times <= kMostParameters && count_.all <= kMostParameters;
    if (!fits) {
      too_many_ = true;
      return;
    }
    count_.largest_module = std::max(count_.largest_module, module);
    count_.all += times;
  }

  StatusOr<ParameterCount> Result() const {
    if (too_many_) return InvalidArgumentError("a model of more than 1e15 parameters");
    return count_;
  }

 private:
  ParameterCount count_;
  bool too_many_ = false;
};

void AddLatentAttention(ModuleSum& sum, const DecoderSpec& spec) {
  const std::int64_t layers = spec.layers, width = spec.width, latent = spec.latent_width;
  const std::int64_t query = spec.heads * spec.head_width, values = spec.heads * spec.value_width;
  const std::int64_t turned = TurnedWidth(spec), of_queries = spec.query_latent_width;
  if (of_queries > 0) {
    sum.Add(layers, of_queries, width, spec.qkv_bias);
    sum.Add(layers, of_queries, 1);
  }
  sum.Add(layers, query, of_queries > 0 ? of_queries : width);
  sum.Add(layers, latent + turned, width, spec.qkv_bias);
  sum.Add(layers, latent, 1);
  sum.Add(layers, query - spec.heads * turned + values, latent);
  sum.Add(layers, width, values, spec.attention_output_bias);
}

void AddAttention(ModuleSum& sum, const DecoderSpec& spec) {
  if (spec.qkv == QkvLayout::kLatent) return AddLatentAttention(sum, spec);
  const std::int64_t layers = spec.layers, width = spec.width;
  const std::int64_t query = spec.heads * spec.head_width, key = spec.kv_heads * spec.head_width;
  if (spec.qkv == QkvLayout::kApart) {
    sum.Add(layers, query, width, spec.qkv_bias);
    sum.Add(2 * layers, key, width, spec.qkv_bias);
  } else {
    sum.Add(layers, query + 2 * key, width, spec.qkv_bias);
  }
  sum.Add(layers, width, query, spec.attention_output_bias);
  if (spec.query_key_norm == QueryKeyNorm::kPerHead) sum.Add(2 * layers, spec.head_width, 1);
  if (spec.query_key_norm == QueryKeyNorm::kFullWidth) {
    sum.Add(layers, query, 1);
    sum.Add(layers, key, 1);
  }
}

void AddDenseMlp(ModuleSum& sum, const DecoderSpec& spec, std::int64_t layers) {
  const std::int64_t width = spec.width, mlp = spec.mlp_width;
  const std::int64_t wide = spec.fused_gate_up ? 2 * mlp : mlp;
  sum.Add(spec.gated_mlp && !spec.fused_gate_up ? 2 * layers : layers, wide, width, spec.mlp_bias);
  sum.Add(layers, width, mlp, spec.mlp_bias);
}

void AddExperts(ModuleSum& sum, const DecoderSpec& spec, std::int64_t layers) {
  const std::int64_t width = spec.width, shared = spec.shared_expert_width;
  sum.Add(layers, spec.experts, width);                            // the router
  sum.Add(layers, spec.experts * 3 * WidthOfExpert(spec), width);  // one module per layer
  if (shared == 0) return;
  sum.Add(3 * layers, shared, width);
  if (spec.shared_expert_mix == SharedExpertMix::kGated) sum.Add(layers, 1, width);
  if (spec.shared_expert_mix == SharedExpertMix::kWeighted)
    sum.Add(layers, 2, width, /*bias=*/true);
}

std::int64_t CountExpertLayers(const DecoderSpec& spec) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < spec.layers; ++i) count += spec.HasExperts(i) ? 1 : 0;
  return count;
}

std::int64_t CountNormsOfLayer(const DecoderSpec& spec) {
  if (spec.residual == Residual::kParallelOneNorm) return 1;
  return spec.norm_position == NormPosition::kAround ? 4 : 2;
}

void AddNorms(ModuleSum& sum, const DecoderSpec& spec, std::int64_t norms) {
  sum.Add(norms, spec.width, 1, /*bias=*/spec.norm == NormKind::kLayer);
}

void AddEmbedding(ModuleSum& sum, const DecoderSpec& spec) {
  sum.Add(1, spec.vocabulary, spec.width);
  if (spec.positions == Positions::kLearned) {
    sum.Add(1, spec.max_positions + spec.first_position, spec.width);
  }
  if (spec.embedding_norm) AddNorms(sum, spec, 1);
}

// `with_experts`: the number of layers with experts.
void AddLayers(ModuleSum& sum, const DecoderSpec& spec, std::int64_t with_experts) {
  AddNorms(sum, spec, spec.layers * CountNormsOfLayer(spec));
  AddAttention(sum, spec);
  if (with_experts < spec.layers) AddDenseMlp(sum, spec, spec.layers - with_experts);
  if (with_experts > 0) AddExperts(sum, spec, with_experts);
}

void AddHead(ModuleSum& sum, const DecoderSpec& spec) {
  if (spec.final_norm) AddNorms(sum, spec, 1);
  if (!spec.tied_head) sum.Add(1, spec.vocabulary, spec.width);
}

}  // namespace

StatusOr<ParameterCount> CountParameters(const DecoderSpec& spec) {
  ModuleSum sum;
  AddEmbedding(sum, spec);
  AddLayers(sum, spec, CountExpertLayers(spec));
  AddHead(sum, spec);
  return sum.Result();
}

StatusOr<std::vector<BlockCount>> CountBlocks(const DecoderSpec& spec) {
  if (spec.layers > kMostLayers) return InvalidArgumentError("a model of more than 1e6 layers");
  DecoderSpec one_layer = spec;
  one_layer.layers = 1;
  ModuleSum embedding, dense, mixed, head;
  AddEmbedding(embedding, spec);
  AddLayers(dense, one_layer, /*with_experts=*/0);
  if (spec.experts > 0) AddLayers(mixed, one_layer, /*with_experts=*/1);
  AddHead(head, spec);
  DS_ASSIGN_OR_RETURN(const ParameterCount of_embedding, embedding.Result());
  DS_ASSIGN_OR_RETURN(const ParameterCount of_dense, dense.Result());
  DS_ASSIGN_OR_RETURN(const ParameterCount of_mixed, mixed.Result());
  DS_ASSIGN_OR_RETURN(const ParameterCount of_head, head.Result());
  std::vector<BlockCount> blocks = {{"DecoderEmbedding", of_embedding.all}};
  for (std::int64_t i = 0; i < spec.layers; ++i) {
    blocks.push_back({"DecoderLayer", spec.HasExperts(i) ? of_mixed.all : of_dense.all});
  }
  blocks.push_back({"LmHead", of_head.all});
  return blocks;
}

}  // namespace ds::models
