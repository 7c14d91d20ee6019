#pragma once

// How many bytes of model state a rank holds: the formula that the planner shows, and that the
// memory ledger and the allocator are held to (tests/ranks/zero_memory_test.cc).

#include <cstdint>

#include "runtime/precision/dtype_policy.h"
#include "runtime/zero/zero_stage.h"

namespace ds::zero {

struct ModelStateInputs {
  std::int64_t trainable = 0;  // parameters with a gradient
  std::int64_t frozen = 0;
  int optimizer_states = 2;  // values that the optimizer keeps per parameter: Adam's two
  std::int64_t muon = 0;     // of the trainable ones: matrices under Muon, with one value less
  int world_size = 1;
  Sharding sharding;
  precision::DtypePolicy dtypes;
};

// Bytes on one rank while all of it is there (between the last backward and the update). What comes
// and goes block by block (gathered blocks, a block's gradient before its reduction) is not
// counted.
struct ModelStateBytes {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer_state = 0;
  std::int64_t master_weights = 0;  // none where the parameters have the masters' dtype

  std::int64_t total() const { return parameters + gradients + optimizer_state + master_weights; }
};

// With P parameters of width b: b P of parameters, the gradient dtype's width x P of gradients, the
// state dtype's x P per optimizer state, the masters' x P of master weights where they are not the
// parameters; each divided by the world size where it is sharded. Adam in bf16 unsharded is the
// familiar 16 P, with masters and state in bf16 8 P. The padding of the flat buffers is left
// out: at most 32 elements a parameter and 64 a rank and unit.
ModelStateBytes ExpectedModelStateBytes(const ModelStateInputs& inputs);

}  // namespace ds::zero
