#pragma once

// FlatViews are the views that an op runs over, FlatPlan assigns their elements to a GPU launch's
// threads. Free of LibTorch.

#include <algorithm>
#include <cstdint>

#include "runtime/optim/kernels/update_ops.h"

namespace ds::optim {

enum class FlatType { kFloat, kBFloat16, kHalf };

struct FlatView {
  void* data = nullptr;
  FlatType type = FlatType::kFloat;
};

// UpdateDecision decides about an update on the device of its views, before the host knows the
// result: two floats in the device's memory, written by DecideUpdate (gradient_norm.h).
struct UpdateDecision {
  float gradient_scale = 1.0F;  // replaces the op's scale, or narrow_scale
  float applies = 1.0F;         // 0: the update leaves all views unchanged
};

// The views of an OptimizerSlice. Two views may be identical memory, element for element; otherwise
// they must not overlap.
struct FlatViews {
  FlatView parameter;  // 16-bit ones are rounded to nearest once, after the arithmetic in fp32
  FlatView gradient;
  FlatView state[2];
  FlatView published;  // receives the updated parameter; may be absent
  std::int64_t count = 0;
  // For 16-bit parameters: the gradient is rounded to their type, multiplied by this factor, and
  // rounded again before the op reads it.
  float narrow_scale = 1.0F;
  int device = 0;
  const UpdateDecision* decision = nullptr;  // on the device; null: the host decided
};

// Applies the decision to the op, or to the scale of gradients of 16-bit parameters. Returns false
// if there is no update. Call it on the device of the views only.
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

// Runs the op over all elements of the views. On a GPU it is enqueued on LibTorch's current stream
// of that device and does not wait. Errors: c10::Error.
using FlatUpdate = void (*)(const FlatOp& op, const FlatViews& views);

// Raise it when a declaration above changes.
inline constexpr int kFlatUpdateVersion = 2;
// The function that the CUDA plugin exports. Returns its FlatUpdate, or null if `version` is not
// its own.
inline constexpr char kFlatUpdateEntry[] = "ds_cuda_flat_update";
using FlatUpdateEntry = FlatUpdate (*)(int version);

inline constexpr int kFlatWidth = 4;

// Elements are processed in groups of four if all views of the op allow aligned access. Addresses
// only need equal misalignment: up to three leading elements are then processed one by one.
// Otherwise all elements are processed one by one.
struct FlatPlan {
  std::int64_t head = 0;   // elements before the first four
  std::int64_t fours = 0;  // the remaining elements go one by one
};

// Returns the number of elements from the last multiple of four to the view's start.
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

// Returns the largest useful number of threads.
inline std::int64_t ThreadsFor(const FlatPlan& plan, std::int64_t count) {
  return std::max(plan.fours, count - plan.fours * kFlatWidth);
}

}  // namespace ds::optim
