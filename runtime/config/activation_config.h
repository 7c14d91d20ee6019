#pragma once

// ActivationCheckpointingConfig: the section of that name. It says whether layers are recomputed
// (config/recompute_choice.h) and how their inputs are kept.

#include <cstdint>
#include <optional>

namespace ds::config {

struct ActivationCheckpointingConfig {
  bool asked_for = false;              // a key of the section is not at its default
  bool partition_activations = false;  // each tensor rank keeps its part of them
  // Parts lie in one buffer for so many of them; absent: in memory of their own.
  std::optional<std::int64_t> buffered_parts;
  bool cpu_checkpointing = false;
  bool synchronize_checkpoint_boundary = false;
  bool profile = false;  // the times of recomputed blocks, by step
};

}  // namespace ds::config
