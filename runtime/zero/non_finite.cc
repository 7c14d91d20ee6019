#include "runtime/zero/non_finite.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/precision/finite_check.h"
#include "runtime/zero/groups.h"
#include "runtime/zero/rank_totals.h"

namespace ds::zero {
namespace {

constexpr double kNowhere = std::numeric_limits<double>::infinity();

// Ordinals count the trainable parameters in model order. Doubles, to travel by GatherNumbers;
// compared field by field, the first in time is the smallest.
struct Place {
  double micro_step = kNowhere;
  double rank = 0.0;
  double parameter = 0.0;  // ordinal
  double element = 0.0;
  double value = 0.0;

  std::vector<double> numbers() const { return {micro_step, rank, parameter, element, value}; }
};

std::string NameOf(const ShardedModel& model, double ordinal) {
  std::string name;
  ForEachTrainableGroup(model, [&](const Group& group, std::int64_t first) {
    const std::int64_t index = static_cast<std::int64_t>(ordinal) - first;
    if (index < 0 || index >= group.parameters.layout().size()) return;
    name = group.parameters.parameter(static_cast<int>(index)).name;
  });
  DS_CHECK(!name.empty());
  return name;
}

Place FirstArrival(const ShardedModel& model) {
  Place place;
  ForEachTrainableGroup(model, [&](const Group& group, std::int64_t first) {
    const auto& arrival = group.gradients->first_non_finite();
    if (!arrival || static_cast<double>(arrival->micro_step) >= place.micro_step) return;
    place = {.micro_step = static_cast<double>(arrival->micro_step),
             .rank = static_cast<double>(model.context().world->rank()),
             .parameter = static_cast<double>(first + arrival->parameter),
             .element = static_cast<double>(arrival->element),
             .value = arrival->value};
  });
  return place;
}

// In this rank's shard of the mean; micro_step is 0.
Place FirstInShard(const ShardedModel& model) {
  Place place;
  const int rank = model.context().world->rank();
  ForEachTrainableGroup(model, [&](const Group& group, std::int64_t first) {
    const FlatLayout& layout = group.parameters.layout();
    const at::Tensor shard = group.gradients->shard();
    for (const Piece& piece : layout.PiecesOf(layout.shard(rank))) {
      if (std::isfinite(place.micro_step)) return;
      const at::Tensor values = shard.narrow(0, piece.range_start, piece.count);
      const auto found = precision::FirstNonFinite(values);
      if (!found) continue;
      place = {.micro_step = 0.0,
               .parameter = static_cast<double>(first + piece.parameter),
               .element = static_cast<double>(piece.parameter_start + found->index),
               .value = values[found->index].item<double>()};
    }
  });
  return place;
}

std::optional<Place> FirstOfAllRanks(const Context& context, const Place& mine) {
  const auto places = GatherNumbers(context, mine.numbers());
  const std::vector<double>& first = *std::min_element(places.begin(), places.end());
  if (!std::isfinite(first[0])) return std::nullopt;
  return Place{first[0], first[1], first[2], first[3], first[4]};
}

std::string KindAndElement(const Place& place) {
  const char* kind = std::isnan(place.value) ? "NaN" : place.value > 0 ? "+Inf" : "-Inf";
  return std::string(kind) + " at element " +
         std::to_string(static_cast<std::int64_t>(place.element));
}

}  // namespace

std::optional<std::string> FindNonFiniteGradient(const ShardedModel& model) {
  const Context& context = model.context();
  if (const auto place = FirstOfAllRanks(context, FirstArrival(model))) {
    return NameOf(model, place->parameter) + " (" + KindAndElement(*place) + ", rank " +
           std::to_string(static_cast<int>(place->rank)) + ", micro-step " +
           std::to_string(static_cast<std::int64_t>(place->micro_step) + 1) + ")";
  }
  if (const auto place = FirstOfAllRanks(context, FirstInShard(model))) {
    return NameOf(model, place->parameter) + " (" + KindAndElement(*place) +
           " of the mean over ranks)";
  }
  return std::nullopt;
}

}  // namespace ds::zero
