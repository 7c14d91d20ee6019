#pragma once

// The model state of a rank: its dtypes, its sharding, and its bytes. One formula serves `dsrun
// estimate`, the precision of the runtime, and the tests that compare it with the memory ledger and
// LibTorch's allocator (tests/ranks/zero_memory_test.cc). Pure.

#include <cstdint>

#include "runtime/config/ds_config.h"

namespace ds::config {

// The parts of the model state that are split into one shard per rank; the others are replicated in
// full on every rank.
struct Sharding {
  bool optimizer = false;   // master weights and the optimizer's state
  bool gradients = false;   // gradients outside the backward pass of their block
  bool parameters = false;  // parameters outside the forward and backward pass of their block

  friend bool operator==(const Sharding&, const Sharding&) = default;
};

// Returns the sharding of a stage: stage 0 shards nothing, 1 the optimizer, 2 also the gradients, 3
// also the parameters. With shard_ranks == 1 the shard is the full state, so nothing is sharded.
// Requires 0 <= stage <= 3.
//
// The runtime reads Sharding, not the stage's number, except where DeepSpeed has a rule by the
// configured stage: the dynamic loss scale, torch_autocast's reduction and no_sync.
Sharding ShardingOfStage(int stage, std::int64_t shard_ranks);
// Returns the sharding of a config. Offloaded state is moved in and out as shards, even with a
// single rank.
Sharding ShardingOf(const ZeroConfig& zero, std::int64_t shard_ranks);

// Returns the bytes of one value.
std::int64_t Width(DataType type);

// Number of values of 8-bit state that share a scale.
inline constexpr std::int64_t kStateBlock = 256;
inline std::int64_t CountStateBlocks(std::int64_t values) {
  return (values + kStateBlock - 1) / kStateBlock;
}

struct StateTypes {
  DataType parameter = DataType::kFp32;  // parameters and activations
  DataType gradient = DataType::kFp32;   // gradients accumulated over micro-batches
  DataType master = DataType::kFp32;     // weights that the optimizer updates
  DataType state = DataType::kFp32;      // the optimizer's state
  bool blockwise = false;                // optimizer state is kept in 8 bits

  // Returns the bytes of `values` values of state.
  std::int64_t StateBytes(std::int64_t values) const;
  // Returns true if the optimizer keeps weights of its own instead of updating the parameters
  // themselves.
  bool has_master_weights() const { return parameter != master; }
};

// Selects the dtypes. fp16.enabled and bf16.enabled set the parameters' dtype. grad_accum_dtype
// defaults to that dtype. Masters and state are fp32 unless the config requests 16 bits.
StateTypes ChooseStateTypes(const DsConfig& config);

struct ModelStateInputs {
  std::int64_t trainable = 0;  // parameters with a gradient
  std::int64_t frozen = 0;
  std::int64_t rounded = 0;      // frozen parameters kept in 8 bits (ZeroConfig)
  int optimizer_states = 2;      // CountOptimizerStates
  std::int64_t muon = 0;         // trainable matrices updated by Muon: one state value less
  std::int64_t shard_ranks = 1;  // ranks that the state is sharded over
  Sharding sharding;
  StateTypes types;
};

// Bytes on one rank at the peak, between the last backward pass and the update. Memory that comes
// and goes block by block (gathered blocks, a block's gradient before its reduction) is not
// counted.
struct ModelStateBytes {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer_state = 0;
  std::int64_t master_weights = 0;  // 0 where the parameters have the masters' dtype

  std::int64_t total() const { return parameters + gradients + optimizer_state + master_weights; }
};

// Computes the bytes for P parameters of width b: b P of parameters, P x the gradient dtype's width
// of gradients, P x the state dtype's width per optimizer state, and P x the masters' width of
// master weights where these are not the parameters. Each is divided by shard_ranks where it is
// sharded. Adam in bf16 unsharded takes the familiar 16 P; with masters and state in bf16, 8 P.
// Padding of the flat buffers is not counted: at most 32 elements per parameter and 64 per rank and
// unit.
ModelStateBytes CountModelStateBytes(const ModelStateInputs& inputs);

}  // namespace ds::config
