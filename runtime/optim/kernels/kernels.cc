#include "runtime/optim/kernels/kernels.h"

#include "runtime/optim/kernels/simd.h"

namespace ds::optim {
namespace {

// One loop over the streams that the op has. Inlined into each clone, so that it is vectorised for
// that clone's instruction set.
template <typename Op>
[[gnu::always_inline]] inline void Loop(const Op& op, const FlatBlock& block) {
  constexpr Streams kStreams = Op::kStreams;
  const Op own = op;
  float* __restrict parameter = block.parameter;
  const float* __restrict gradient = block.gradient;
  float* __restrict first = block.state[0];
  float* __restrict second = block.state[1];
  for (std::int64_t i = 0; i < block.count; ++i) {
    Element e;
    if constexpr (kStreams.reads_parameter) e.parameter = parameter[i];
    if constexpr (kStreams.reads_gradient) e.gradient = gradient[i];
    if constexpr (kStreams.states > 0) e.state[0] = first[i];
    if constexpr (kStreams.states > 1) e.state[1] = second[i];
    own(e);
    if constexpr (kStreams.states > 0 && kStreams.writes_states) first[i] = e.state[0];
    if constexpr (kStreams.states > 1 && kStreams.writes_states) second[i] = e.state[1];
    if constexpr (kStreams.writes_parameter) parameter[i] = e.parameter;
  }
}

}  // namespace

DS_SIMD_CLONES void UpdateBlock(const AdamOp& op, const FlatBlock& block) { Loop(op, block); }
DS_SIMD_CLONES void UpdateBlock(const SgdOp& op, const FlatBlock& block) { Loop(op, block); }
DS_SIMD_CLONES void UpdateBlock(const SgdMomentumOp& op, const FlatBlock& block) {
  Loop(op, block);
}
DS_SIMD_CLONES void UpdateBlock(const AdagradOp& op, const FlatBlock& block) { Loop(op, block); }
DS_SIMD_CLONES void UpdateBlock(const LionOp& op, const FlatBlock& block) { Loop(op, block); }
DS_SIMD_CLONES void UpdateBlock(const MomentsOp& op, const FlatBlock& block) { Loop(op, block); }
DS_SIMD_CLONES void UpdateBlock(const StepAlongOp& op, const FlatBlock& block) { Loop(op, block); }
DS_SIMD_CLONES void UpdateBlock(const DirectionOp& op, const FlatBlock& block) { Loop(op, block); }
DS_SIMD_CLONES void UpdateBlock(const MuonMomentumOp& op, const FlatBlock& block) {
  Loop(op, block);
}
DS_SIMD_CLONES void UpdateBlock(const DecayAndStepOp& op, const FlatBlock& block) {
  Loop(op, block);
}

}  // namespace ds::optim
