#pragma once

// FlatViews holds the views that an op (element.h) updates. FlatPlan divides their elements among
// the threads of a GPU launch. Free of LibTorch, because nvcc compiles it.

#include <algorithm>
#include <cstdint>

#include "runtime/optim/kernels/update_ops.h"

namespace ds::optim {

enum class FlatType { kFloat, kBFloat16, kHalf };

struct FlatView {
  void* data = nullptr;
  FlatType type = FlatType::kFloat;
};

// UpdateDecision states how, and whether, an update applies. DecideUpdate (gradient_norm.h) writes
// these two floats to the memory of the views' device, so that the host need not wait for the norm.
struct UpdateDecision {
  float gradient_scale = 1.0F;  // replaces the op's gradient_scale, or FlatViews::narrow_scale
  float applies = 1.0F;         // 0: the update leaves all views unchanged
};

// The views of an OptimizerSlice. Two views may be identical memory, element for element; otherwise
// they must not overlap.
struct FlatViews {
  FlatView parameter;  // 16-bit values are rounded to nearest once, after the arithmetic in fp32
  FlatView gradient;
  FlatView state[2];
  FlatView published;  // receives the updated parameter; may be absent
  std::int64_t count = 0;
  // For 16-bit parameters: the gradient is rounded to their type, multiplied by this factor, and
  // rounded again before the op reads it.
  float narrow_scale = 1.0F;
  int device = 0;                            // the GPU's index; 0 on the CPU
  const UpdateDecision* decision = nullptr;  // in the device's memory; null: the host has decided
};

// Returns false if the decision skips the update. Otherwise stores its scale in the op or, for
// 16-bit parameters, in `narrow_scale`. Call it on the device of the views only.
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

// Updates all elements of the views with the op. On a GPU the update is enqueued on LibTorch's
// current stream of that device, and the call does not wait for it. Errors: c10::Error.
using FlatUpdate = void (*)(const FlatOp& op, const FlatViews& views);

// Increase it when a declaration above, FlatOp or an op's coefficients change: a plugin of another
// build would misread its arguments.
inline constexpr int kFlatUpdateVersion = 2;
// The function that the CUDA plugin exports. Returns its FlatUpdate, or null if `version` is not
// its own.
inline constexpr char kFlatUpdateEntry[] = "ds_cuda_flat_update";
using FlatUpdateEntry = FlatUpdate (*)(int version);

inline constexpr int kFlatWidth = 4;

// Elements are processed in groups of four, with aligned vector loads, if the addresses of all
// views of the op have the same misalignment. The elements before the first aligned group (at most
// three) and after the last group are processed one by one. Otherwise all elements are.
struct FlatPlan {
  std::int64_t head = 0;   // number of elements before the first group
  std::int64_t fours = 0;  // number of groups
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

// Returns the largest useful number of threads: a thread processes groups, and single elements, in
// two loops (flat_loop.h).
inline std::int64_t ThreadsFor(const FlatPlan& plan, std::int64_t count) {
  return std::max(plan.fours, count - plan.fours * kFlatWidth);
}

}  // namespace ds::optim
