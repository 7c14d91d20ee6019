#include "runtime/plan/memory/block_sizes.h"

#include <utility>

namespace ds::models {
namespace {

class ParameterList {
 public:
  ParameterList(const DecoderSpec& spec, std::string prefix) : spec_(spec) {
    block_.prefix = std::move(prefix);
  }

  // Marks whether the following parameters belong to experts.
  void set_experts(bool experts) { experts_ = experts; }
  void set_expert(std::int64_t number) { expert_ = number; }  // -1: no expert
  // Sets the part of the following parameters.
  void Begin(BlockComponent part) { part_ = part; }
  void AddMatrix(const std::string& name, std::int64_t rows, std::int64_t columns,
                 bool bias = false) {
    Add({.rows = rows, .columns = columns, .is_matrix = true, .name = name + ".weight"});
    if (bias) Add({.rows = rows, .name = name + ".bias"});
  }
  void AddTable(const char* module, const std::string& path, std::int64_t rows,
                std::int64_t columns) {
    Add({.rows = rows,
         .columns = columns,
         .is_matrix = true,
         .module = module,
         .name = path + ".weight"});
  }
  void AddNorm(const std::string& name, std::int64_t width) {
    Add({.rows = width, .name = name + ".weight"});
    if (spec_.norm == NormKind::kLayer) Add({.rows = width, .name = name + ".bias"});
  }
  void AddVector(const std::string& name, std::int64_t numel) {
    Add({.rows = numel, .name = name + ".weight"});
  }
  BlockSizes Take() { return std::move(block_); }

 private:
  void Add(ParameterSize parameter) {
    parameter.part = part_;
    parameter.is_expert = experts_;
    parameter.expert = expert_;
    block_.parameters.push_back(std::move(parameter));
  }

  const DecoderSpec& spec_;
  BlockSizes block_;
  BlockComponent part_ = BlockComponent::kTable;
  bool experts_ = false;
  std::int64_t expert_ = -1;
};

void AddNorms(const DecoderSpec& spec, ParameterList* list) {
  const WeightNames& names = spec.names;
  const bool after = spec.norm_position == NormPosition::kAfter;
  list->Begin(BlockComponent::kInputNorm);
  list->AddNorm(after ? names.attention_norm_after : names.attention_norm, spec.width);
  if (spec.residual == Residual::kParallelOneNorm) return;
  list->Begin(BlockComponent::kMlpNorm);
  list->AddNorm(after ? names.mlp_norm_after : names.mlp_norm, spec.width);
  if (spec.norm_position != NormPosition::kAround) return;
  list->AddNorm(names.attention_norm_after, spec.width);
  list->AddNorm(names.mlp_norm_after, spec.width);
}

void AddLatentAttention(const DecoderSpec& spec, ParameterList* list) {
  const WeightNames& names = spec.names;
  const auto path = [&](const char* name) { return std::string(names.attention) + "." + name; };
  const std::int64_t query = spec.heads * spec.head_width, values = spec.heads * spec.value_width;
  const std::int64_t turned = TurnedWidth(spec), of_queries = spec.query_latent_width;
  list->Begin(BlockComponent::kProjection);
  if (of_queries > 0) {
    list->AddMatrix(path(names.query_latent), of_queries, spec.width, spec.qkv_bias);
    list->AddVector(path(names.query_latent_norm), of_queries);
    list->AddMatrix(path(names.query_wide), query, of_queries);
  } else {
    list->AddMatrix(path(names.query), query, spec.width);
  }
  list->AddMatrix(path(names.latent), spec.latent_width + turned, spec.width, spec.qkv_bias);
  list->AddVector(path(names.latent_norm), spec.latent_width);
  list->AddMatrix(path(names.latent_wide), query - spec.heads * turned + values, spec.latent_width);
  list->Begin(BlockComponent::kMixed);
  list->AddMatrix(path(names.attention_output), spec.width, values, spec.attention_output_bias);
}

void AddAttention(const DecoderSpec& spec, ParameterList* list) {
  if (spec.qkv == QkvLayout::kLatent) return AddLatentAttention(spec, list);
  const WeightNames& names = spec.names;
  const auto path = [&](const char* name) { return std::string(names.attention) + "." + name; };
  const std::int64_t query = spec.heads * spec.head_width, key = spec.kv_heads * spec.head_width;
  list->Begin(BlockComponent::kProjection);
  if (spec.qkv == QkvLayout::kApart) {
    list->AddMatrix(path(names.query), query, spec.width, spec.qkv_bias);
    list->AddMatrix(path(names.key), key, spec.width, spec.qkv_bias);
    list->AddMatrix(path(names.value), key, spec.width, spec.qkv_bias);
  } else {
    list->AddMatrix(path(names.qkv), query + 2 * key, spec.width, spec.qkv_bias);
  }
  list->Begin(BlockComponent::kMixed);
  list->AddMatrix(path(names.attention_output), spec.width, query, spec.attention_output_bias);
  if (spec.query_key_norm == QueryKeyNorm::kNone) return;
  const bool per_head = spec.query_key_norm == QueryKeyNorm::kPerHead;
  list->Begin(BlockComponent::kProjection);
  list->AddVector(path(names.query_norm), per_head ? spec.head_width : query);
  list->AddVector(path(names.key_norm), per_head ? spec.head_width : key);
}

// Adds the first products of a gated MLP, or the one of a plain MLP, then the second one.
void AddMlp(const DecoderSpec& spec, const std::string& path, std::int64_t width,
            ParameterList* list) {
  const WeightNames& names = spec.names;
  // OPT's matrices are direct children of the layer.
  const auto named = [&](const char* name) { return path.empty() ? name : path + "." + name; };
  list->Begin(BlockComponent::kWiden);
  if (spec.fused_gate_up) {
    list->AddMatrix(named(names.gate_up), 2 * width, spec.width, spec.mlp_bias);
  } else {
    if (spec.gated_mlp) list->AddMatrix(named(names.gate), width, spec.width, spec.mlp_bias);
    list->AddMatrix(named(names.up), width, spec.width, spec.mlp_bias);
  }
  list->Begin(BlockComponent::kDown);
  list->AddMatrix(named(names.down), spec.width, width, spec.mlp_bias);
}

void AddExperts(const DecoderSpec& spec, ParameterList* list) {
  const WeightNames& names = spec.names;
  const auto path = [&](const std::string& name) { return std::string(names.mlp) + "." + name; };
  list->Begin(BlockComponent::kWiden);
  list->set_experts(true);
  list->AddMatrix(path(names.router), spec.experts, spec.width);
  for (std::int64_t i = 0; i < spec.experts; ++i) {
    list->set_expert(i);
    AddMlp(spec, path(names.experts) + "." + std::to_string(i), WidthOfExpert(spec), list);
  }
  list->set_expert(-1);
  list->set_experts(false);
  if (spec.shared_expert_width == 0) return;
  AddMlp(spec, path(names.shared_expert), spec.shared_expert_width, list);
  const std::string gate = path(names.shared_expert_gate);
  if (spec.shared_expert_mix == SharedExpertMix::kGated) list->AddMatrix(gate, 1, spec.width);
  if (spec.shared_expert_mix == SharedExpertMix::kWeighted) {
    list->AddMatrix(gate, 2, spec.width, /*bias=*/true);
  }
}

BlockSizes ListLayer(const DecoderSpec& spec, std::int64_t index) {
  const WeightNames& names = spec.names;
  ParameterList list(spec,
                     std::string(names.base) + "." + names.layers + "." + std::to_string(index));
  AddNorms(spec, &list);
  AddAttention(spec, &list);
  if (spec.HasExperts(index)) {
    AddExperts(spec, &list);
  } else {
    AddMlp(spec, names.mlp, spec.mlp_width, &list);
  }
  return list.Take();
}

BlockSizes ListEmbedding(const DecoderSpec& spec) {
  ParameterList list(spec, spec.names.base);
  list.AddTable(spec.names.tokens, spec.names.tokens, spec.vocabulary, spec.width);
  if (const std::int64_t rows = CountPositions(spec); rows > 0) {
    list.AddTable(spec.names.positions, spec.names.positions, rows, spec.width);
  }
  list.Begin(BlockComponent::kOuterNorm);
  if (spec.embedding_norm) list.AddNorm(spec.names.embedding_norm, spec.width);
  BlockSizes sizes = list.Take();
  sizes.backward_reads = spec.embedding_norm;
  return sizes;
}

BlockSizes ListHead(const DecoderSpec& spec) {
  ParameterList list(spec, "");
  list.Begin(BlockComponent::kOuterNorm);
  if (spec.final_norm) {
    list.AddNorm(std::string(spec.names.base) + "." + spec.names.final_norm, spec.width);
  }
  list.Begin(BlockComponent::kTable);
  if (!spec.tied_head) {
    list.AddTable(spec.names.head, spec.names.head, spec.vocabulary, spec.width);
  }
  BlockSizes sizes = list.Take();
  if (spec.tied_head) sizes.also_reads = {0};
  return sizes;
}

// Weights of attention and MLP may be stored [in, out] (transformers' Conv1D).
std::vector<std::int64_t> ShapeOf(const ParameterSize& parameter, bool in_out) {
  if (!parameter.is_matrix) return {parameter.rows};
  const bool is_outer =
      parameter.part == BlockComponent::kTable || parameter.part == BlockComponent::kOuterNorm;
  if (in_out && !is_outer) return {parameter.columns, parameter.rows};
  return {parameter.rows, parameter.columns};
}

}  // namespace

std::vector<StoredParameter> ListStored(const DecoderSpec& spec) {
  std::vector<StoredParameter> all;
  for (const BlockSizes& block : ListBlockSizes(spec)) {
    const std::string prefix = block.prefix.empty() ? "" : block.prefix + ".";
    for (const ParameterSize& parameter : block.parameters) {
      all.push_back({prefix + parameter.name, ShapeOf(parameter, spec.weights_are_in_out)});
    }
  }
  return all;
}

std::int64_t CountPositions(const DecoderSpec& spec) {
  return spec.positions == Positions::kLearned ? spec.max_positions + spec.first_position : 0;
}

std::vector<BlockSizes> TakeStage(const std::vector<BlockSizes>& all,
                                  const std::vector<std::pair<int, int>>& runs) {
  std::vector<BlockSizes> stage;
  for (const auto& [first, end] : runs) {
    stage.insert(stage.end(), all.begin() + first, all.begin() + end);
  }
  const bool has_table = runs.front().first == 0;
  const bool has_head = runs.back().second == static_cast<int>(all.size());
  if (all.back().also_reads.empty() || has_table == has_head) return stage;
  ParameterSize table = all.front().parameters.front();
  table.on_two_stages = true;
  if (has_table) stage.front().parameters.front() = table;
  if (has_head) {
    stage.back().parameters.push_back(table);
    stage.back().also_reads.clear();
  }
  return stage;
}

void TakeExperts(std::int64_t count, std::vector<BlockSizes>* blocks) {
  for (BlockSizes& block : *blocks) {
    std::erase_if(block.parameters,
                  [count](const ParameterSize& each) { return each.expert >= count; });
  }
}

std::vector<BlockSizes> ListBlockSizes(const DecoderSpec& spec) {
  std::vector<BlockSizes> blocks = {ListEmbedding(spec)};
  for (std::int64_t i = 0; i < spec.layers; ++i) blocks.push_back(ListLayer(spec, i));
  blocks.push_back(ListHead(spec));
  return blocks;
}

}  // namespace ds::models
