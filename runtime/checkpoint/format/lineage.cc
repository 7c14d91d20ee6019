#include "runtime/checkpoint/format/lineage.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace ds::checkpoint {
namespace {

std::optional<std::int64_t> CountOf(const nlohmann::json& value) {
  constexpr auto kMax = std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMax) return std::nullopt;
  return value.get<std::int64_t>();
}

// A pair [generation, step].
std::optional<CheckpointId> IdFromJson(const nlohmann::json& json) {
  if (!json.is_array() || json.size() != 2) return std::nullopt;
  const auto generation = CountOf(json[0]), step = CountOf(json[1]);
  if (!generation || !step) return std::nullopt;
  return CheckpointId{*generation, *step};
}

}  // namespace

Lineage AssumeLineage(std::int64_t step) {
  Lineage lineage;
  if (step > 0) lineage.past.push_back({.generation = 0, .step = step - 1});
  return lineage;
}

bool ComesFrom(const Lineage& lineage, const CheckpointId& id) {
  return std::any_of(lineage.past.begin(), lineage.past.end(), [&](const CheckpointId& last) {
    return last.generation == id.generation && id.step <= last.step;
  });
}

Lineage ContinueLineage(const Lineage& parent, std::int64_t step, std::int64_t generation) {
  Lineage lineage{.generation = std::max(generation, parent.generation), .past = parent.past};
  if (lineage.past.empty() || lineage.past.back().generation != parent.generation) {
    lineage.past.emplace_back();
  }
  lineage.past.back() = {.generation = parent.generation, .step = step};
  return lineage;
}

nlohmann::json LineageToJson(const Lineage& lineage) {
  nlohmann::json past = nlohmann::json::array();
  for (const CheckpointId& id : lineage.past) past.push_back({id.generation, id.step});
  return {{"generation", lineage.generation}, {"past", std::move(past)}};
}

StatusOr<Lineage> LineageFromJson(const nlohmann::json& json) {
  const Status malformed =
      InvalidArgumentError("field 'lineage' is not {\"generation\":G,\"past\":[[G,STEP],..]}");
  if (!json.is_object() || !json.contains("generation") || !json.contains("past") ||
      !json["past"].is_array()) {
    return malformed;
  }
  const auto generation = CountOf(json["generation"]);
  if (!generation) return malformed;
  Lineage lineage{.generation = *generation, .past = {}};
  for (const nlohmann::json& entry : json["past"]) {
    const auto id = IdFromJson(entry);
    const bool ascends = id && id->generation <= *generation &&
                         (lineage.past.empty() || lineage.past.back().generation < id->generation);
    if (!ascends) return malformed;
    lineage.past.push_back(*id);
  }
  return lineage;
}

}  // namespace ds::checkpoint
