#pragma once

// Visits the parameter groups of a model, in model order.

#include <cstdint>

#include "runtime/zero/sharded_model.h"

namespace ds::zero {

// Calls visit(Group&).
template <typename Visit>
void ForEachGroup(const ShardedModel& model, Visit visit) {
  for (const auto& unit : model.units()) {
    for (const auto& group : unit->groups()) visit(*group);
  }
}

// Calls visit(Group&, first): `first` is the ordinal of the group's first parameter among the
// trainable ones.
template <typename Visit>
void ForEachTrainableGroup(const ShardedModel& model, Visit visit) {
  std::int64_t first = 0;
  ForEachGroup(model, [&](Group& group) {
    if (!group.trainable()) return;
    visit(group, first);
    first += group.parameters.layout().size();
  });
}

}  // namespace ds::zero
