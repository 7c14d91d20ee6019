#pragma once

// PlanStepMemory: what a rank will hold in a step at the moment when it is the most, and between
// steps. It walks the places of the step with the plan that the rank will follow (ResidencyPlan),
// and does with sizes what Residency, BufferPool and FlatGradients do with memory. Pure.
//
// The caller gives what blocks keep of a micro-batch (BlockActivations): models know it. Not
// counted: what 1-bit optimizers make on their way, gradients that a user's hooks keep.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/model_state.h"
#include "runtime/plan/zero/residency_plan.h"
#include "runtime/plan/zero/step_traffic.h"
#include "runtime/plan/zero/step_windows.h"
#include "runtime/plan/zero/tiers.h"
#include "runtime/plan/zero/unit_shape.h"

namespace ds::zero {

// Bytes that a micro-batch needs for one block, beside what blocks before it have kept.
struct BlockActivations {
  std::int64_t kept = 0;      // from its forward pass for the backward pass
  std::int64_t forward = 0;   // the most in the forward pass, what it keeps included
  std::int64_t backward = 0;  // the most in the backward pass, what it has kept included
  // Kept from a backward pass for the gradients of weights, where they come behind it, and the most
  // at its end.
  std::int64_t delayed = 0;
  std::int64_t delaying = 0;
};

// The way of a micro-batch through units, or back.
struct Pass {
  enum class Kind {
    kForward,
    kBackward,
    kInputGradient,   // backward, but for the gradients of weights
    kWeightGradient,  // these
  };

  Kind kind = Kind::kForward;
  std::int64_t micro_batch = 0;
  // Those of one of the stage's chunks. None: all.
  std::optional<UnitRange> units = {};
  bool begins = true;                           // the stage has not had the micro-batch before
  bool sends = true;                            // to another stage, behind the forward pass
  bool returns = true;                          // behind the backward pass, to another stage
  bool hands_back = false, was_handed = false;  // the gradient, to this stage's own chunk before
};

// So many ranks have state between them, in this way.
struct StateCut {
  int shard_ranks = 1;
  config::Sharding sharding;
};

// A step as DescribeStep, and whoever knows the model, say it.
struct StepMemoryInput {
  std::vector<UnitShape> units;
  std::vector<BlockActivations> activations;  // by unit
  std::int64_t batch_bytes = 0;               // of a micro-batch's inputs
  int shard_ranks = 1;                        // among which flat buffers are cut
  int gradient_ranks = 1;                     // whose gradients add up
  config::Sharding sharding;
  std::optional<StateCut> of_experts = {};  // where ranks have different ones
  config::StateTypes types;
  config::DataType travel = config::DataType::kFp32;  // of gradients between ranks
  int optimizer_states = 2;                           // per element; one less under Muon
  ResidencyBudgets budgets;
  bool overlap = false;
  std::optional<std::int64_t> publish_elements = {};  // of whole parameters at once; absent: all
  std::int64_t micro_batches = 1;
  // A stage of a pipeline has the step's passes in this order. None: each micro-batch's backward
  // pass follows its forward pass.
  std::vector<Pass> passes = {};
  StepWindows windows = {};           // around those
  bool input_needs_gradient = false;  // a stage before has something that is trained
  std::vector<int> blocks = {};       // the units' numbers in the model; none: they are the same
  // A micro-batch's forward pass sends these to the stage behind. They are held until the end of
  // its backward pass, which has a gradient of that size from there; the gradient that goes to the
  // stage before is held until the next one goes.
  std::int64_t sent_bytes = 0;
  std::int64_t returned_bytes = 0;
  std::int64_t handed_bytes = 0;  // of such a gradient for a chunk of this stage
  // So many ranks, which hold the same, send a part each of what goes forward and of gradients.
  int activation_parts = 1, gradient_parts = 1;
  Tiers tiers;
  bool updates_in_turns = true;  // the optimizer; else it has all of its state at once
  bool cuts_turns = true;        // at Tiers::most_elements; else one is of a whole bucket
  std::optional<config::ZenFlowConfig> zenflow = {};
  int secondary_ranks = 0;         // ZeRO++: that have all secondary shards between them; 0: none
  bool rounds_weights = false;     // what is gathered of trained ones
  bool keeps_rounded = false;      // frozen weights, which are gathered as they are kept
  bool rounds_gradients = false;   // what is reduced
  bool keeps_lost_values = false;  // LoCo

  StateCut CutOf(const BucketShape& bucket) const {
    return bucket.of_experts && of_experts ? *of_experts : StateCut{shard_ranks, sharding};
  }
};

// In the tier where the rank computes, by what it is for (device::MemoryUse).
struct HeldMemory {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer_state = 0;
  std::int64_t master_weights = 0;
  std::int64_t comm_buffers = 0;
  std::int64_t activations = 0;
  std::int64_t other = 0;  // what an optimizer makes on its way

  std::int64_t total() const {
    return parameters + gradients + optimizer_state + master_weights + comm_buffers + activations +
           other;
  }
  friend bool operator==(const HeldMemory&, const HeldMemory&) = default;
};

// So much lies elsewhere, at the most.
struct AwayMemory {
  std::int64_t host = 0;  // of a rank on a GPU
  std::int64_t files = 0;
  std::int64_t file_buffers = 0;  // of the host: what comes from files and goes there

  friend bool operator==(const AwayMemory&, const AwayMemory&) = default;
};

struct StepMemory {
  HeldMemory peak;
  std::string when;                  // "the backward pass of block 3"
  std::int64_t first_step_peak = 0;  // the pool has kept nothing yet
  HeldMemory between_steps;
  std::int64_t peak_activations = 0;  // the most at any moment
  AwayMemory away;
  StepTraffic traffic;
  StepWindows windows;
};

// Requires an activation for each unit.
StepMemory PlanStepMemory(const StepMemoryInput& input);

}  // namespace ds::zero
