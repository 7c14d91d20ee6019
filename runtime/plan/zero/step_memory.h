#pragma once

// PlanStepMemory: computes the peak memory of a rank in a step, and its memory between steps. It
// walks the positions of the step with the rank's own plan (ResidencyPlan), and does with sizes
// what Residency, BufferPool and FlatGradients do with memory. Pure.
//
// The caller provides the activations of a micro-batch (BlockActivations), which depend on the
// model. Not counted: temporaries of 1-bit optimizers, gradients kept by users' hooks.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/model_state.h"
#include "runtime/plan/zero/residency_plan.h"
#include "runtime/plan/zero/step_windows.h"
#include "runtime/plan/zero/tiers.h"

namespace ds::zero {

// A range of parameters in a flat buffer that share one kind of optimizer.
struct RangeShape {
  int first = 0;  // the first parameter; ends at the next range
  bool muon = false;
  std::int64_t iteration = 0;  // elements (config::CountIterationElements) of Muon's largest matrix
};

// The parameters of one flat buffer, in order.
struct BucketShape {
  std::vector<std::int64_t> numels;
  bool trained = true;
  bool of_bytes = false;       // quantized bytes of frozen weights; not converted
  bool of_experts = false;     // other ranks have different ones
  bool on_two_stages = false;  // tied: another pipeline stage has the same
  bool rounded = false;        // may be quantized for transfer (ZeRO++) or, if frozen, stored so
  std::vector<RangeShape> ranges = {};  // empty: one range, without Muon
};

// The parameters of a block. The backward pass does nothing before the first trained unit.
struct UnitShape {
  std::vector<BucketShape> buckets;
  std::vector<int> also_reads = {};  // earlier units
  bool backward_reads = true;        // parameters
};

// Bytes that one block needs for a micro-batch, without those kept by earlier blocks.
struct BlockActivations {
  std::int64_t saved = 0;     // by the forward pass, for the backward pass
  std::int64_t forward = 0;   // peak of the forward pass, including `saved`
  std::int64_t backward = 0;  // peak of the backward pass, including `saved`
  // With delayed weight gradients: bytes kept from the backward pass for them, and the peak at its
  // end.
  std::int64_t delayed = 0;
  std::int64_t delaying = 0;
};

// A forward or backward pass of a micro-batch through units.
struct Pass {
  enum class Kind {
    kForward,
    kBackward,
    kInputGradient,   // backward, without weight gradients
    kWeightGradient,  // weight gradients only
  };

  Kind kind = Kind::kForward;
  std::int64_t micro_batch = 0;
  // The units of one of the stage's model chunks. nullopt: all.
  std::optional<UnitRange> units = {};
  bool begins = true;                           // the first pass of the micro-batch on this stage
  bool sends = true;                            // to another stage, after the forward pass
  bool returns = true;                          // to another stage, after the backward pass
  bool hands_back = false, was_handed = false;  // the gradient, to this stage's preceding chunk
};

// The number of ranks that share a state, and how they shard it.
struct StateSharding {
  int shard_ranks = 1;
  config::Sharding sharding;
};

// A step, as described by DescribeStep and by a caller that knows the model.
struct StepMemoryInput {
  std::vector<UnitShape> units;
  std::vector<BlockActivations> activations;  // by unit
  std::int64_t batch_bytes = 0;               // of a micro-batch's inputs
  int shard_ranks = 1;                        // that share flat buffers
  int gradient_ranks = 1;                     // that sum their gradients
  config::Sharding sharding;
  std::optional<StateSharding> of_experts = {};  // if ranks hold different experts
  config::StateTypes types;
  config::DataType reduction_type = config::DataType::kFp32;  // of gradients between ranks
  int optimizer_states = 2;                                   // per element; one less under Muon
  ResidencyBudgets budgets;
  bool overlap = false;
  std::optional<std::int64_t> publish_elements = {};  // full parameters at once; nullopt: all
  std::int64_t micro_batches = 1;
  // The passes of a pipeline stage's step, in order. Empty: each micro-batch's backward pass
  // follows its forward pass.
  std::vector<Pass> passes = {};
  StepWindows windows = {};             // over these passes
  bool input_needs_gradient = false;    // an earlier stage has trained parameters
  std::vector<std::string> names = {};  // of the units, for messages; empty: "block 0", ...
  // A micro-batch's forward pass sends sent_bytes to the next stage and holds them until the end of
  // its backward pass, which receives a gradient of the same size. The gradient sent to the
  // previous stage (returned_bytes) is held until the next one is sent.
  std::int64_t sent_bytes = 0;
  std::int64_t returned_bytes = 0;
  std::int64_t handed_bytes = 0;  // of such a gradient for a chunk of this stage
  // The number of ranks that hold the same activations or gradients and send one part each.
  int activation_parts = 1, gradient_parts = 1;
  Tiers tiers;
  bool updates_by_sub_group =
      true;                       // the optimizer, by sub-groups; else it needs all state at once
  bool splits_sub_groups = true;  // at Tiers::most_elements; else a sub-group is a full bucket
  std::optional<config::ZenFlowConfig> zenflow = {};
  int secondary_ranks = 0;         // ZeRO++ hpZ: ranks that share all secondary shards; 0: none
  bool rounds_weights = false;     // quantizes trained weights for gathers
  bool keeps_rounded = false;      // keeps frozen weights quantized, and gathers them so
  bool rounds_gradients = false;   // quantizes gradients for reductions
  bool keeps_lost_values = false;  // LoCo: keeps quantization errors

  StateSharding FindStateSharding(const BucketShape& bucket) const {
    return bucket.of_experts && of_experts ? *of_experts : StateSharding{shard_ranks, sharding};
  }
};

// The bytes of a rank's collectives for model state, and of its messages between
// stages, in a step. Counted like comm/traffic.h: full tensors, independent of each rank's share.
struct StepTraffic {
  std::int64_t all_gather = 0;      // parameters, without full updates (Muon)
  std::int64_t reduce_scatter = 0;  // gradients, without full updates (Muon)
  // Unsharded gradients, and sums between MiCS groups and between stages with tied weights.
  std::int64_t all_reduce = 0;
  std::int64_t all_to_all = 0;      // gradients quantized by ZeRO++
  std::int64_t between_stages = 0;  // without message headers

  void Add(const StepTraffic& other, std::int64_t times = 1) {
    all_gather += times * other.all_gather;
    reduce_scatter += times * other.reduce_scatter;
    all_reduce += times * other.all_reduce;
    all_to_all += times * other.all_to_all;
    between_stages += times * other.between_stages;
  }
  friend bool operator==(const StepTraffic&, const StepTraffic&) = default;
};

// Bytes in the tier where the rank computes, by purpose (device::MemoryUse).
struct HeldMemory {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer_state = 0;
  std::int64_t master_weights = 0;
  std::int64_t comm_buffers = 0;
  std::int64_t activations = 0;
  std::int64_t other = 0;  // temporaries of optimizers, copies in transit

  std::int64_t total() const {
    return parameters + gradients + optimizer_state + master_weights + comm_buffers + activations +
           other;
  }
  friend bool operator==(const HeldMemory&, const HeldMemory&) = default;
};

// Peak bytes stored outside the tier where the rank computes.
struct OffloadedMemory {
  std::int64_t host = 0;  // of a rank on a GPU
  std::int64_t files = 0;
  std::int64_t file_buffers = 0;  // in host memory, for file reads and writes

  friend bool operator==(const OffloadedMemory&, const OffloadedMemory&) = default;
};

struct StepMemory {
  HeldMemory peak;
  std::string when;                  // "the backward pass of block 3"
  std::int64_t first_step_peak = 0;  // with an empty buffer pool
  HeldMemory between_steps;
  std::int64_t peak_activations = 0;  // the maximum at any moment
  OffloadedMemory offload;
  StepTraffic traffic;
  StepWindows windows;
};

// Requires one BlockActivations per unit.
StepMemory PlanStepMemory(const StepMemoryInput& input);

}  // namespace ds::zero
