#include "runtime/plan/model/tensor_plan.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace ds::models {
namespace {

// Splits as evenly as possible; the first parts have one more.
IndexRange SplitEvenly(std::int64_t extent, int part, int parts) {
  const std::int64_t each = extent / parts, longer = extent % parts;
  return {each * part + std::min<std::int64_t>(part, longer), each + (part < longer ? 1 : 0)};
}

IndexRange Scale(const IndexRange& range, std::int64_t by, std::int64_t offset = 0) {
  return {offset + range.first * by, range.count * by};
}

// "self_attn", "q_proj" -> "self_attn.q_proj"; empty names do not count.
std::string Join(std::string_view outer, std::string_view inner) {
  if (outer.empty() || inner.empty()) return std::string(outer) + std::string(inner);
  return std::string(outer) + "." + std::string(inner);
}

// Returns the reason why a decoder cannot be split, or "".
std::string ExplainUnshardable(const DecoderSpec& spec, int parts) {
  if (parts == 1) return "";
  if (spec.query_key_norm == QueryKeyNorm::kFullWidth) {
    return "norms of its queries span all heads, which are not built in parts";
  }
  for (const std::int64_t width : {spec.mlp_width, spec.expert_width, spec.shared_expert_width}) {
    if (width > 0 && parts > width) return "its feed-forward width is " + std::to_string(width);
  }
  if (parts > spec.vocabulary) return "its vocabulary has " + std::to_string(spec.vocabulary);
  if (parts <= spec.kv_heads) return "";
  const std::string keys = std::to_string(spec.kv_heads) + " heads of the keys";
  if (spec.qkv == QkvLayout::kLatent) return "it has " + keys + ", widened from one row";
  if (spec.qkv != QkvLayout::kApart) {
    return "it has " + keys + ", in one weight with the queries";
  }
  if (spec.heads % parts == 0 && parts % spec.kv_heads == 0) return "";
  return "it has " + std::to_string(spec.heads) + " heads of the queries and " + keys;
}

// "it can into 2 or 4"
std::string NameNearest(const DecoderSpec& spec, int parts) {
  int below = parts - 1;
  while (below > 1 && !ExplainUnshardable(spec, below).empty()) --below;
  const std::string text = below > 1 ? std::to_string(below) : "";
  const std::int64_t most = std::min(spec.heads, std::int64_t{4} * parts);
  for (std::int64_t above = parts + 1; above <= most; ++above) {
    if (!ExplainUnshardable(spec, static_cast<int>(above)).empty()) continue;
    return "it can into " + text + (text.empty() ? "" : " or ") + std::to_string(above);
  }
  return text.empty() ? "it cannot be sharded" : "it can into " + text;
}

}  // namespace

StatusOr<TensorPlan> TensorPlan::Create(const DecoderSpec& spec, int part, int parts) {
  if (parts < 1 || part < 0 || part >= parts) {
    return InvalidArgumentError("there is no part " + std::to_string(part) + " of " +
                                std::to_string(parts));
  }
  if (const std::string why = ExplainUnshardable(spec, parts); !why.empty()) {
    return InvalidArgumentError("tensor parallelism cannot shard the model into " +
                                std::to_string(parts) + " parts: " + why + "; " +
                                NameNearest(spec, parts));
  }
  return TensorPlan(spec, part, parts);
}

TensorPlan::TensorPlan(const DecoderSpec& spec, int part, int parts)
    : full_(spec),
      slice_(spec),
      parts_(parts),
      vocabulary_(SplitEvenly(spec.vocabulary, part, parts)) {
  const std::int64_t shared_by = spec.heads / spec.kv_heads;
  if (parts <= spec.kv_heads) {
    key_heads_ = SplitEvenly(spec.kv_heads, part, parts);
    heads_ = Scale(key_heads_, shared_by);
  } else {
    key_heads_ = {0, spec.kv_heads};
    heads_ = SplitEvenly(spec.heads, part, parts);
    copied_key_head_ = heads_.first / shared_by;
  }
  slice_.heads = heads_.count;
  slice_.kv_heads = key_heads_.count;
  slice_.mlp_width = SplitEvenly(spec.mlp_width, part, parts).count;
  slice_.expert_width = SplitEvenly(spec.expert_width, part, parts).count;
  slice_.shared_expert_width = SplitEvenly(spec.shared_expert_width, part, parts).count;
  slice_.vocabulary = vocabulary_.count;
  if (parts == 1) return;
  AddAttention();
  const WeightNames& names = spec.names;
  AddMlp(names.mlp, spec.mlp_width, part);
  const std::string in_mlp = std::string(names.mlp) + ".";
  for (std::int64_t i = 0; i < spec.experts; ++i) {
    AddMlp(in_mlp + names.experts + "." + std::to_string(i), WidthOfExpert(spec), part);
  }
  if (spec.shared_expert_width > 0) {
    AddMlp(in_mlp + names.shared_expert, spec.shared_expert_width, part);
  }
  for (const std::string& table : {Join(names.base, names.tokens), std::string(names.head)}) {
    rows_.push_back({.module = table, .extent = spec.vocabulary, .retained = {vocabulary_}});
  }
}

void TensorPlan::AddAttention() {
  const WeightNames& names = full_.names;
  const std::int64_t head = full_.head_width;
  const std::int64_t query_width = full_.heads * head, key_width = full_.kv_heads * head;
  const std::int64_t value = WidthOfValue(full_), wide = head - TurnedWidth(full_) + value;
  const auto add = [&](const char* name, std::int64_t extent, std::vector<IndexRange> retained,
                       bool by_outputs = true) {
    rows_.push_back({.module = Join(names.attention, name),
                     .by_outputs = by_outputs,
                     .in_out = full_.weights_are_in_out,
                     .extent = extent,
                     .retained = std::move(retained)});
  };
  const IndexRange queries = Scale(heads_, head);
  switch (full_.qkv) {
    case QkvLayout::kApart:
      add(names.query, query_width, {queries});
      if (!copied_key_head_) {
        add(names.key, key_width, {Scale(key_heads_, head)});
        add(names.value, key_width, {Scale(key_heads_, head)});
      }
      break;
    case QkvLayout::kConcatenated:
      add(names.qkv, query_width + 2 * key_width,
          {queries, Scale(key_heads_, head, query_width),
           Scale(key_heads_, head, query_width + key_width)});
      break;
    case QkvLayout::kByGroup:
      add(names.qkv, query_width + 2 * key_width,
          {Scale(key_heads_, (full_.heads / full_.kv_heads + 2) * head)});
      break;
    case QkvLayout::kLatent:  // every rank has the latent rows from which heads are projected
      add(full_.query_latent_width > 0 ? names.query_wide : names.query, query_width, {queries});
      add(names.latent_wide, full_.heads * wide, {Scale(heads_, wide)});
      break;
  }
  add(names.attention_output, full_.heads * value, {Scale(heads_, value)}, /*by_outputs=*/false);
}

void TensorPlan::AddMlp(const std::string& path, std::int64_t width, int part) {
  const WeightNames& names = full_.names;
  const IndexRange width_slice = SplitEvenly(width, part, parts_);
  const auto add = [&](const char* name, std::int64_t extent, std::vector<IndexRange> retained,
                       bool by_outputs = true) {
    rows_.push_back({.module = Join(path, name),
                     .by_outputs = by_outputs,
                     .in_out = full_.weights_are_in_out,
                     .extent = extent,
                     .retained = std::move(retained)});
  };
  if (full_.fused_gate_up) {
    add(names.gate_up, 2 * width, {width_slice, Scale(width_slice, 1, width)});
  } else {
    if (full_.gated_mlp) add(names.gate, width, {width_slice});
    add(names.up, width, {width_slice});
  }
  add(names.down, width, {width_slice}, /*by_outputs=*/false);
}

const TensorPlan::ShardedLayer* TensorPlan::FindRow(std::string_view module) const {
  for (const ShardedLayer& row : rows_) {
    if (module == row.module || module.ends_with("." + row.module)) return &row;
  }
  return nullptr;
}

std::optional<WeightSlice> TensorPlan::SliceOf(const std::string& name) const {
  const auto before = [&](std::string_view end) -> const ShardedLayer* {
    if (!name.ends_with(end)) return nullptr;
    return FindRow(std::string_view(name).substr(0, name.size() - end.size()));
  };
  const auto slice = [](const ShardedLayer& row, bool is_first) {
    return WeightSlice{is_first ? 0U : 1U, row.extent, row.retained};
  };
  if (const ShardedLayer* const row = before(".weight"))
    return slice(*row, row->by_outputs != row->in_out);
  // Biases and adapters are stored [out, in].
  if (const ShardedLayer* const row = before(".lora_A.weight"); row && !row->by_outputs) {
    return slice(*row, false);
  }
  for (const char* end : {".bias", ".lora_B.weight", ".lora_magnitude_vector"}) {
    if (const ShardedLayer* const row = before(end); row && row->by_outputs)
      return slice(*row, true);
  }
  return std::nullopt;
}

}  // namespace ds::models
