#include "runtime/checkpoint_format/lineage.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <random>

namespace ds::checkpoint {
namespace {

std::optional<std::int64_t> CountOf(const nlohmann::json& value) {
  constexpr auto kMax = std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMax) return std::nullopt;
  return value.get<std::int64_t>();
}

// Parses [generation, step] or [generation, step, start].
std::optional<CheckpointId> IdFromJson(const nlohmann::json& json) {
  if (!json.is_array() || json.size() < 2 || json.size() > 3) return std::nullopt;
  const auto generation = CountOf(json[0]), step = CountOf(json[1]);
  const auto start = json.size() == 3 ? CountOf(json[2]) : 0;
  if (!generation || !step || !start) return std::nullopt;
  return CheckpointId{*generation, *step, *start};
}

nlohmann::json IdToJson(const CheckpointId& id) {
  nlohmann::json json = {id.generation, id.step};
  if (id.start != 0) json.push_back(id.start);
  return json;
}

// Returns the starts in a lineage by generation.
std::multimap<std::int64_t, std::int64_t> StartsOf(const Lineage& lineage) {
  std::multimap<std::int64_t, std::int64_t> starts{{lineage.generation, lineage.start}};
  for (const CheckpointId& id : lineage.past) starts.emplace(id.generation, id.start);
  return starts;
}

}  // namespace

bool IsOfOneStart(const CheckpointId& a, const CheckpointId& b) {
  return a.generation == b.generation && a.start == b.start;
}

CheckpointId IdOf(const Lineage& lineage, std::int64_t step) {
  return {.generation = lineage.generation, .step = step, .start = lineage.start};
}

bool MayBeOfOneJob(const Lineage& a, const Lineage& b) {
  const auto of_a = StartsOf(a), of_b = StartsOf(b);
  const auto have_one = [&](std::int64_t generation) {
    for (auto [of, end_of] = of_a.equal_range(generation); of != end_of; ++of) {
      for (auto [at, end] = of_b.equal_range(generation); at != end; ++at) {
        if (of->second == 0 || at->second == 0 || of->second == at->second) return true;
      }
    }
    return false;
  };
  return std::all_of(of_a.begin(), of_a.end(), [&](const auto& other) {
    return !of_b.contains(other.first) || have_one(other.first);
  });
}

std::int64_t DrawStart() {
  constexpr std::uint64_t kLargest = (std::uint64_t{1} << 53) - 1;
  std::random_device random;
  return std::uniform_int_distribution<std::int64_t>(1, kLargest)(random);
}

Lineage AssumeLineage(std::int64_t step) {
  Lineage lineage;
  if (step > 0) lineage.past.push_back({.step = step - 1});
  return lineage;
}

bool DescendsFrom(const Lineage& lineage, const CheckpointId& id) {
  return std::any_of(lineage.past.begin(), lineage.past.end(), [&](const CheckpointId& last) {
    return IsOfOneStart(last, id) && id.step <= last.step;
  });
}

Lineage ContinueLineage(const Lineage& parent, std::int64_t step, const Lineage& writer) {
  Lineage lineage{.generation = std::max(writer.generation, parent.generation),
                  .past = parent.past,
                  .start = writer.start};
  const CheckpointId id = IdOf(parent, step);
  if (lineage.past.empty() || !IsOfOneStart(lineage.past.back(), id)) lineage.past.emplace_back();
  lineage.past.back() = id;
  return lineage;
}

nlohmann::json LineageToJson(const Lineage& lineage) {
  nlohmann::json past = nlohmann::json::array();
  for (const CheckpointId& id : lineage.past) past.push_back(IdToJson(id));
  nlohmann::json json = {{"generation", lineage.generation}, {"past", std::move(past)}};
  if (lineage.start != 0) json["start"] = lineage.start;
  return json;
}

StatusOr<Lineage> LineageFromJson(const nlohmann::json& json) {
  const Status malformed =
      InvalidArgumentError("field 'lineage' is not {\"generation\":G,\"past\":[[G,STEP],..]}");
  if (!json.is_object() || !json.contains("generation") || !json.contains("past") ||
      !json["past"].is_array()) {
    return malformed;
  }
  const auto generation = CountOf(json["generation"]);
  const auto start = json.contains("start") ? CountOf(json["start"]) : 0;
  if (!generation || !start) return malformed;
  Lineage lineage{.generation = *generation, .past = {}, .start = *start};
  for (const nlohmann::json& entry : json["past"]) {
    const auto id = IdFromJson(entry);
    const CheckpointId* last = lineage.past.empty() ? nullptr : &lineage.past.back();
    const bool follows = id && id->generation <= *generation &&
                         (last == nullptr || last->generation < id->generation ||
                          (last->generation == id->generation && last->start != id->start));
    if (!follows) return malformed;
    lineage.past.push_back(*id);
  }
  return lineage;
}

}  // namespace ds::checkpoint
