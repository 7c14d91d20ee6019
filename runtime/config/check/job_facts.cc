#include "runtime/config/check/job_facts.h"

#include <algorithm>
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

std::optional<std::int64_t> HiddenSizeIn(const nlohmann::json& config) {
  for (const char* name : {"hidden_size", "n_embd", "d_model", "dim"}) {
    if (const auto found = config.find(name); found != config.end()) {
      if (const auto size = AsSize(*found)) return size;
    }
  }
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
  if (!facts.hidden_size && text != config.end() && text->is_object()) {
    facts.hidden_size = HiddenSizeIn(*text);
  }
  return facts;
}

}  // namespace ds::config
