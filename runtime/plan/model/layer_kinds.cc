#include "runtime/plan/model/layer_kinds.h"

namespace ds::models {

void SetLayerTypes(DecoderSpec* spec, const std::function<bool(std::int64_t)>& is_windowed) {
  std::vector<LayerKind> kinds;
  for (std::int64_t i = 0; i < spec->layers; ++i) {
    const bool rotary = spec->KindOf(i).rotary;
    kinds.push_back({.windowed = is_windowed(i), .rotary = rotary});
  }
  spec->layer_kinds = std::move(kinds);
}

void ReadLayerTypes(ConfigReader& reader, DecoderSpec* spec) {
  const auto types = reader.Strings("layer_types");
  if (!types) return;
  if (types->size() != static_cast<std::size_t>(spec->layers)) {
    return reader.Refuse("'layer_types' has " + std::to_string(types->size()) +
                         " elements for a model of " + std::to_string(spec->layers) + " layers");
  }
  for (const std::string& type : *types) {
    if (type == "full_attention" || type == "sliding_attention") continue;
    return reader.Refuse("'layer_types' has \"" + type +
                         "\"; supported are full_attention and sliding_attention");
  }
  SetLayerTypes(spec, [&](std::int64_t layer) {
    return (*types)[static_cast<std::size_t>(layer)] == "sliding_attention";
  });
}

}  // namespace ds::models
