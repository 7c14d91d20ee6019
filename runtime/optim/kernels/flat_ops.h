#pragma once

// The views that an op runs over, and how a launch on a GPU deals their elements to threads. Free
// of LibTorch.

#include <algorithm>
#include <cstdint>

#include "runtime/optim/kernels/update_ops.h"

namespace ds::optim {

enum class FlatType { kFloat, kBFloat16, kHalf };

struct FlatView {
  void* data = nullptr;
  FlatType type = FlatType::kFloat;
};

// UpdateDecision is what decides an update where its views are, before the host knows: two floats
// in the device's memory, as DecideUpdate (gradient_norm.h) writes them.
struct UpdateDecision {
  float gradient_scale = 1.0F;  // in place of the op's, or of narrow_scale
  float applies = 1.0F;         // 0: the update leaves all views as they are
};

// The views of a Part. Two may be the same memory, element for element; otherwise they do not
// overlap.
struct FlatViews {
  FlatView parameter;  // narrow ones are rounded to nearest once, behind the arithmetic in fp32
  FlatView gradient;
  FlatView state[2];
  FlatView published;  // gets the parameter that was written; may be absent
  std::int64_t count = 0;
  // For narrow parameters, whose gradient is rounded to their type, multiplied by this and rounded
  // again before the op sees it.
  float narrow_scale = 1.0F;
  int device = 0;
  const UpdateDecision* decision = nullptr;  // on the device; null: the host has decided
};

// Puts what has been decided into the op or the scale of narrow gradients; false: there is no
// update. Only where the views are.
template <typename Op>
DS_HOST_DEVICE bool TakeDecision(const FlatViews& views, Op* op, float* narrow_scale) {
  if (views.decision == nullptr) return true;
  if (views.decision->applies == 0.0F) return false;
  if constexpr (requires { op->c.gradient_scale; }) {
    const bool is_narrow = views.parameter.type != FlatType::kFloat;
    (is_narrow ? *narrow_scale : op->c.gradient_scale) = views.decision->gradient_scale;
  }
  return true;
}

// Runs the op over all elements of the views. On a GPU behind what LibTorch's current stream there
// holds already, without waiting. Errors: c10::Error.
using FlatUpdate = void (*)(const FlatOp& op, const FlatViews& views);

// Raised whenever something above changes.
inline constexpr int kFlatUpdateVersion = 2;
// The function that the CUDA plugin exports: its FlatUpdate, or null when the asked version is not
// its own.
inline constexpr char kFlatUpdateEntry[] = "ds_cuda_flat_update";
using FlatUpdateEntry = FlatUpdate (*)(int version);

inline constexpr int kFlatWidth = 4;

// Elements go by fours where all the op's views can be read so (their addresses need not be
// aligned, only alike: a head of up to three elements is done one by one), else one by one.
struct FlatPlan {
  std::int64_t head = 0;   // elements before the first four
  std::int64_t fours = 0;  // what is neither goes one by one
};

// Elements from the last multiple of four to where the view begins.
inline std::int64_t MeasureMisalignment(const FlatView& view) {
  const std::uintptr_t size = view.type == FlatType::kFloat ? sizeof(float) : sizeof(std::uint16_t);
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data) / size % kFlatWidth);
}

template <typename Op>
FlatPlan PlanOf(const FlatViews& views) {
  constexpr Streams kStreams = Op::kStreams;
  const FlatView& one = kStreams.states > 0 ? views.state[0] : views.parameter;
  const auto alike = [&](bool used, const FlatView& view) {
    return !used || view.data == nullptr || MeasureMisalignment(view) == MeasureMisalignment(one);
  };
  const bool by_fours =
      alike(kStreams.reads_parameter || kStreams.writes_parameter, views.parameter) &&
      alike(kStreams.reads_gradient, views.gradient) &&
      alike(kStreams.states > 1, views.state[1]) &&
      alike(kStreams.writes_parameter, views.published);
  if (!by_fours) return {};
  const std::int64_t head =
      std::min(views.count, (kFlatWidth - MeasureMisalignment(one)) % kFlatWidth);
  return {.head = head, .fours = (views.count - head) / kFlatWidth};
}

// Threads that have something to do, at most.
inline std::int64_t ThreadsFor(const FlatPlan& plan, std::int64_t count) {
  return std::max(plan.fours, count - plan.fours * kFlatWidth);
}

}  // namespace ds::optim
