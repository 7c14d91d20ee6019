#pragma once

// ActivationCheckpointingConfig holds the section `activation_checkpointing`. The section selects
// whether layers are recomputed (config/recompute_choice.h) and how their inputs are kept.

#include <cstdint>
#include <optional>

namespace ds::config {

struct ActivationCheckpointingConfig {
  bool asked_for = false;              // a key of the section differs from its default
  bool partition_activations = false;  // each tensor rank keeps its part of the inputs
  // One buffer holds the parts of this many layers. Absent: each part has memory of its own.
  std::optional<std::int64_t> buffered_parts;
  bool cpu_checkpointing = false;
  bool synchronize_checkpoint_boundary = false;
  bool profile = false;  // reports the times of recomputed blocks, per step
};

}  // namespace ds::config
