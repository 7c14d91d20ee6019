#include "runtime/models/memory/block_sizes.h"

#include <utility>

namespace ds::models {
namespace {

class ParameterList {
 public:
  explicit ParameterList(const DecoderSpec& spec) : spec_(spec) {}

  void AddMatrix(std::int64_t rows, std::int64_t columns, bool bias = false) {
    AddTable("", rows, columns);
    if (bias) AddVector(rows);
  }
  void AddTable(const char* module, std::int64_t rows, std::int64_t columns) {
    block_.parameters.push_back(
        {.rows = rows, .columns = columns, .is_matrix = true, .module = module});
  }
  void AddNorms(int count, std::int64_t width) {
    const int vectors = spec_.norm == NormKind::kLayer ? 2 : 1;
    for (int i = 0; i < count * vectors; ++i) AddVector(width);
  }
  void AddVector(std::int64_t numel) { block_.parameters.push_back({.rows = numel}); }
  BlockSizes Take() { return std::move(block_); }

 private:
  const DecoderSpec& spec_;
  BlockSizes block_;
};

int CountNorms(const DecoderSpec& spec) {
  if (spec.residual == Residual::kParallelOneNorm) return 1;
  return spec.norm_place == NormPlace::kAround ? 4 : 2;
}

void AddDenseMlp(ParameterList& list, const DecoderSpec& spec) {
  const bool two = spec.gated_mlp && !spec.fused_gate_up;
  for (int i = 0; i < (two ? 2 : 1); ++i) {
    list.AddMatrix(spec.fused_gate_up ? 2 * spec.mlp_width : spec.mlp_width, spec.width,
                   spec.mlp_bias);
  }
  list.AddMatrix(spec.width, spec.mlp_width, spec.mlp_bias);
}

void AddExperts(ParameterList& list, const DecoderSpec& spec) {
  const auto add = [&](std::int64_t width) {
    for (int i = 0; i < 2; ++i) list.AddMatrix(width, spec.width);
    list.AddMatrix(spec.width, width);
  };
  list.AddMatrix(spec.experts, spec.width);
  for (std::int64_t i = 0; i < spec.experts; ++i) add(WidthOfExpert(spec));
  if (spec.shared_expert_width == 0) return;
  add(spec.shared_expert_width);
  list.AddMatrix(1, spec.width);
}

BlockSizes ListLayer(const DecoderSpec& spec, bool experts) {
  ParameterList list(spec);
  const std::int64_t query = spec.heads * spec.head_width, key = spec.kv_heads * spec.head_width;
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
  experts ? AddExperts(list, spec) : AddDenseMlp(list, spec);
  return list.Take();
}

BlockSizes ListEmbedding(const DecoderSpec& spec) {
  ParameterList list(spec);
  list.AddTable(spec.names.tokens, spec.vocabulary, spec.width);
  if (const std::int64_t rows = CountPositions(spec); rows > 0) {
    list.AddTable(spec.names.positions, rows, spec.width);
  }
  if (spec.embedding_norm) list.AddNorms(1, spec.width);
  BlockSizes sizes = list.Take();
  sizes.backward_reads = spec.embedding_norm;
  return sizes;
}

BlockSizes ListHead(const DecoderSpec& spec) {
  ParameterList list(spec);
  if (spec.final_norm) list.AddNorms(1, spec.width);
  if (!spec.tied_head) list.AddTable(spec.names.head, spec.vocabulary, spec.width);
  BlockSizes sizes = list.Take();
  if (spec.tied_head) sizes.also_reads = {0};
  return sizes;
}

}  // namespace

std::int64_t CountPositions(const DecoderSpec& spec) {
  return spec.positions == Positions::kLearned ? spec.max_positions + spec.first_position : 0;
}

std::vector<BlockSizes> ListStageSizes(const DecoderSpec& spec, int first, int end) {
  std::vector<BlockSizes> all = ListBlockSizes(spec);
  const bool has_part = end - first < static_cast<int>(all.size());
  if (has_part && spec.tied_head) {
    ParameterSize& table = all.front().parameters.front();
    table.on_two_stages = true;
    if (first > 0) {
      all.back().parameters.push_back(table);
      all.back().also_reads.clear();
    }
  }
  return {all.begin() + first, all.begin() + end};
}

std::vector<BlockSizes> ListBlockSizes(const DecoderSpec& spec) {
  std::vector<BlockSizes> blocks = {ListEmbedding(spec)};
  const BlockSizes dense = ListLayer(spec, /*experts=*/false);
  const BlockSizes mixed = spec.experts > 0 ? ListLayer(spec, /*experts=*/true) : dense;
  for (std::int64_t i = 0; i < spec.layers; ++i) {
    blocks.push_back(spec.HasExperts(i) ? mixed : dense);
  }
  blocks.push_back(ListHead(spec));
  return blocks;
}

}  // namespace ds::models
