#pragma once

// The model state of a rank: its types, what of it is sharded, and the bytes that this makes. One
// formula for `dsrun estimate`, for the precision of the runtime, and for the tests that hold the
// memory ledger and LibTorch's allocator to it (tests/ranks/zero_memory_test.cc). Pure.

#include <cstdint>

#include "runtime/config/ds_config.h"

namespace ds::config {

// The parts of the model state that are cut into one shard per rank instead of being whole on every
// rank.
struct Sharding {
  bool optimizer = false;   // master weights and the optimizer's state
  bool gradients = false;   // gradients outside the backward pass of their block
  bool parameters = false;  // parameters outside the forward and backward pass of their block

  friend bool operator==(const Sharding&, const Sharding&) = default;
};

// Stage 0 shards nothing, 1 the optimizer, 2 the gradients too, 3 the parameters too. `shard_ranks`
// have the shards between them; a single one's shard is the whole, so nothing is sharded. Requires
// 0 <= stage <= 3.
//
// The runtime asks Sharding, not the stage's number, but where DeepSpeed has a rule by the
// configured stage: the dynamic loss scale, torch_autocast's reduction and no_sync.
Sharding ShardingOfStage(int stage, std::int64_t shard_ranks);
// The same, but that what is offloaded comes and goes as shards do, those of a single rank, too.
Sharding ShardingOf(const ZeroConfig& zero, std::int64_t shard_ranks);

// Bytes of a value.
std::int64_t Width(DataType type);

// Values of state in 8 bits that share a scale.
inline constexpr std::int64_t kStateBlock = 256;
inline std::int64_t CountStateBlocks(std::int64_t values) {
  return (values + kStateBlock - 1) / kStateBlock;
}

struct StateTypes {
  DataType parameter = DataType::kFp32;  // parameters and activations
  DataType gradient = DataType::kFp32;   // where gradients are accumulated over micro-batches
  DataType master = DataType::kFp32;     // of the weights that the optimizer updates
  DataType state = DataType::kFp32;      // of what the optimizer keeps beside them
  bool blockwise = false;                // that is in 8 bits

  // Bytes of so many values of state.
  std::int64_t StateBytes(std::int64_t values) const;
  // An optimizer that does not update the parameters themselves keeps weights of its own.
  bool has_master_weights() const { return parameter != master; }
};

// fp16.enabled and bf16.enabled set the parameters' type. grad_accum_dtype defaults to it; masters
// and state are fp32 unless asked for in 16 bit.
StateTypes ChooseStateTypes(const DsConfig& config);

struct ModelStateInputs {
  std::int64_t trainable = 0;  // parameters with a gradient
  std::int64_t frozen = 0;
  std::int64_t rounded = 0;      // of the frozen ones: kept in 8 bits (ZeroConfig)
  int optimizer_states = 2;      // CountOptimizerStates
  std::int64_t muon = 0;         // of the trainable ones: matrices under Muon, with one value less
  std::int64_t shard_ranks = 1;  // that have the shards between them
  Sharding sharding;
  StateTypes types;
};

// Bytes on one rank while all of it is there (between the last backward and the update). What comes
// and goes block by block (gathered blocks, a block's gradient before its reduction) is not
// counted.
struct ModelStateBytes {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer_state = 0;
  std::int64_t master_weights = 0;  // none where the parameters have the masters' type

  std::int64_t total() const { return parameters + gradients + optimizer_state + master_weights; }
};

// With P parameters of width b: b P of parameters, the gradient type's width x P of gradients, the
// state type's x P per optimizer state, the masters' x P of master weights where they are not the
// parameters; each divided by shard_ranks where it is sharded. Adam in bf16 unsharded is the
// familiar 16 P, with masters and state in bf16 8 P. The padding of the flat buffers is left
// out: at most 32 elements a parameter and 64 a rank and unit.
ModelStateBytes CountModelStateBytes(const ModelStateInputs& inputs);

}  // namespace ds::config
