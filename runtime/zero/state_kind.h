#pragma once

// The kinds of model state that can be moved to host memory between steps, under DeepSpeed's names.

namespace ds::zero {

enum class StateKind {
  kOptimStates,
  kHpParams,  // master weights; where there are none the parameters are both
  kLpParams,
  kLpGrads,               // between steps there are none
  kContiguousGradBuffer,  // buffers that are kept from step to step: freed, as nothing is in them
};

}  // namespace ds::zero
