#pragma once

// StateKind: model state that can be moved to host memory between steps, with DeepSpeed's names.

namespace ds::zero {

enum class StateKind {
  kOptimStates,
  kHpParams,  // master weights; without them the parameters are both kinds
  kLpParams,
  kLpGrads,               // between steps there are none
  kContiguousGradBuffer,  // buffers kept from step to step; freed, because they are empty
};

}  // namespace ds::zero
