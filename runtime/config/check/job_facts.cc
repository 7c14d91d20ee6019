#include "runtime/config/check/job_facts.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

namespace ds::config {
namespace {

constexpr std::int64_t kLargestHiddenSize = std::int64_t{1} << 31;  // its square fits in an int64

std::optional<std::int64_t> AsSize(const nlohmann::json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto size = value.get<std::uint64_t>();
  const bool fits = size >= 1 && size < std::uint64_t{kLargestHiddenSize};
  return fits ? std::optional(static_cast<std::int64_t>(size)) : std::nullopt;
}

// Returns the value of the first of these names that is a valid size.
std::optional<std::int64_t> SizeIn(const nlohmann::json& config,
                                   std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto found = config.find(name); found != config.end()) {
      if (const auto size = AsSize(*found)) return size;
    }
  }
  return std::nullopt;
}

std::optional<std::int64_t> HiddenSizeIn(const nlohmann::json& config) {
  if (const auto size = SizeIn(config, {"hidden_size", "n_embd", "d_model", "dim"})) return size;
  const auto sizes = config.find("hidden_sizes");
  if (sizes == config.end() || !sizes->is_array()) return std::nullopt;
  std::optional<std::int64_t> largest;
  for (const nlohmann::json& size : *sizes) largest = std::max(largest, AsSize(size));
  return largest;
}

}  // namespace

ModelFacts ReadModelFacts(std::string_view config_json, std::string name) {
  ModelFacts facts{.name = std::move(name)};
  const nlohmann::json config =
      nlohmann::json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return facts;
  facts.hidden_size = HiddenSizeIn(config);
  const auto text = config.find("text_config");
  const bool has_text = text != config.end() && text->is_object();
  if (!facts.hidden_size && has_text) facts.hidden_size = HiddenSizeIn(*text);
  const auto find = [&](std::initializer_list<const char*> names) {
    const auto size = SizeIn(config, names);
    return size || !has_text ? size : SizeIn(*text, names);
  };
  facts.layers = find({"num_hidden_layers", "n_layer", "num_layers", "n_layers"});
  facts.experts = find({"num_local_experts", "num_experts", "n_routed_experts"});
  return facts;
}

}  // namespace ds::config
