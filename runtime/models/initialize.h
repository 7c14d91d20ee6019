#pragma once

// Random first values that depend on (seed, parameter name) alone: not on the order in which
// parameters are filled, the rank, the device or the number of threads.

#include <cstdint>
#include <string>

#include "runtime/models/block.h"

namespace ds::models {

// First values of a block: matrices from normal(0, std), biases at zero, other vectors (norms) at
// one.
struct NormalInit {
  double std = 0.02;
  double residual_std = 0.02;
  std::string residual_name;  // parameters whose name ends so start with residual_std; "": none
};

// Requires materialised parameters. Values are drawn in fp32 on the CPU and rounded to each
// parameter's dtype, so that bf16 and fp32 runs start from the same weights.
void InitializeParameters(Block& block, const NormalInit& init, std::uint64_t seed);

// A block of a known family: starts as `init` says.
class FamilyBlock : public Block {
 public:
  FamilyBlock(std::string prefix, NormalInit init)
      : Block(std::move(prefix)), init_(std::move(init)) {}
  void Initialize(std::uint64_t seed) override { InitializeParameters(*this, init_, seed); }

 private:
  NormalInit init_;
};

}  // namespace ds::models
