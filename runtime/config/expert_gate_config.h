#pragma once

// MoeConfig holds the `moe` section of a ds_config: the arguments of DeepSpeed's MoE layer
// (deepspeed.moe.layer.MoE), applied to the experts of a built-in model. ExpertGateConfig is the
// gate of that layer, which replaces the model's own routing. The initializers are the layer's
// defaults.

#include <cstdint>
#include <optional>

namespace ds::config {

enum class ExpertGateNoise { kNone, kJitter, kRSample };

struct ExpertGateConfig {
  double capacity_factor = 1.0;             // training: times an even share of a rank's tokens
  double evaluation_capacity_factor = 1.0;  // the same in evaluation
  std::int64_t min_capacity = 4;            // tokens
  bool drops_tokens = true;                 // false: an expert takes all tokens routed to it
  ExpertGateNoise noise = ExpertGateNoise::kNone;  // while training
  bool selects_at_random = true;  // top-1: a full expert keeps a random subset of its tokens
  bool draws_second = true;       // top-2: the second expert is drawn at random

  friend bool operator==(const ExpertGateConfig&, const ExpertGateConfig&) = default;
};

// The `moe` section.
struct MoeConfig {
  // The model must have these numbers; 0: not given, not checked.
  std::int64_t experts = 0, experts_per_token = 0;
  std::optional<ExpertGateConfig> gate;  // absent: the model's own routing
  bool residual = false;  // an MLP in parallel with the experts, mixed with their output

  friend bool operator==(const MoeConfig&, const MoeConfig&) = default;
};

}  // namespace ds::config
