#pragma once

// The ops of flat_ops.h on the CPU, over blocks of fp32: free of LibTorch, so that they are
// compiled with the flags vectorisation needs.

#include <array>
#include <cstdint>

#include "runtime/optim/kernels/flat_ops.h"

namespace ds::optim {

// Elements that are updated together; the ranges do not overlap.
struct FlatBlock {
  static constexpr std::int64_t kMaxCount = 1024;  // all its streams fit the first-level cache
  static constexpr std::size_t kMaxStates = 3;

  float* parameter = nullptr;
  const float* gradient = nullptr;
  std::array<float*, kMaxStates> state{};  // in the order of Optimizer::state_names
  std::int64_t count = 0;
};

void UpdateBlock(const AdamOp& op, const FlatBlock& block);
void UpdateBlock(const SgdOp& op, const FlatBlock& block);
void UpdateBlock(const SgdMomentumOp& op, const FlatBlock& block);
void UpdateBlock(const AdagradOp& op, const FlatBlock& block);
void UpdateBlock(const LionOp& op, const FlatBlock& block);
void UpdateBlock(const MomentsOp& op, const FlatBlock& block);
void UpdateBlock(const StepAlongOp& op, const FlatBlock& block);
void UpdateBlock(const DirectionOp& op, const FlatBlock& block);
void UpdateBlock(const MuonMomentumOp& op, const FlatBlock& block);
void UpdateBlock(const DecayAndStepOp& op, const FlatBlock& block);

}  // namespace ds::optim
