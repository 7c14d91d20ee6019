#pragma once

// FlatPlan: how the elements of flat views are dealt to threads.
//
// Elements go by fours where all the op's views can be read so (their addresses need not be
// aligned, only alike: a head of up to three elements is done one by one), else one by one.

#include <algorithm>
#include <cstdint>

#include "runtime/optim/kernels/flat_ops.h"

namespace ds::optim {

inline constexpr int kFlatWidth = 4;

struct FlatPlan {
  std::int64_t head = 0;   // elements before the first four
  std::int64_t fours = 0;  // what is neither goes one by one
};

// Elements from the last multiple of four to where the view begins.
inline std::int64_t Misalignment(const FlatView& view) {
  const std::uintptr_t size = view.type == FlatType::kFloat ? sizeof(float) : sizeof(std::uint16_t);
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data) / size % kFlatWidth);
}

template <typename Op>
FlatPlan PlanOf(const FlatViews& views) {
  constexpr Streams kStreams = Op::kStreams;
  const FlatView& one = kStreams.states > 0 ? views.state[0] : views.parameter;
  const auto alike = [&](bool used, const FlatView& view) {
    return !used || view.data == nullptr || Misalignment(view) == Misalignment(one);
  };
  const bool by_fours =
      alike(kStreams.reads_parameter || kStreams.writes_parameter, views.parameter) &&
      alike(kStreams.reads_gradient, views.gradient) &&
      alike(kStreams.states > 1, views.state[1]) &&
      alike(kStreams.writes_parameter, views.published);
  if (!by_fours) return {};
  const std::int64_t head = std::min(views.count, (kFlatWidth - Misalignment(one)) % kFlatWidth);
  return {.head = head, .fours = (views.count - head) / kFlatWidth};
}

// Threads that have something to do, at most.
inline std::int64_t ThreadsFor(const FlatPlan& plan, std::int64_t count) {
  return std::max(plan.fours, count - plan.fours * kFlatWidth);
}

}  // namespace ds::optim
