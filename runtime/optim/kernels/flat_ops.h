#pragma once

// Every op there is, and the views that it runs over off the CPU. Free of LibTorch.

#include <cstdint>
#include <variant>

#include "runtime/optim/kernels/direction_ops.h"
#include "runtime/optim/kernels/update_ops.h"

namespace ds::optim {

using FlatOp = std::variant<AdamOp, SgdOp, SgdMomentumOp, AdagradOp, LionOp, MomentsOp, StepAlongOp,
                            DirectionOp, MuonMomentumOp, DecayAndStepOp>;

enum class FlatType { kFloat, kBFloat16, kHalf };

struct FlatView {
  void* data = nullptr;
  FlatType type = FlatType::kFloat;
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
};

// Runs the op over all elements on the views' device, behind what LibTorch's current stream there
// holds already; does not wait. Errors: c10::Error.
using FlatUpdate = void (*)(const FlatOp& op, const FlatViews& views);

// Raised whenever something above changes.
inline constexpr int kFlatUpdateVersion = 1;
// What the CUDA plugin exports: its FlatUpdate, or null when the asked version is not its own.
inline constexpr char kFlatUpdateEntry[] = "ds_cuda_flat_update";
using FlatUpdateEntry = FlatUpdate (*)(int version);

}  // namespace ds::optim
