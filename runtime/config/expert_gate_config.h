#pragma once

// MoeConfig: the `moe` section of a ds_config, the arguments of DeepSpeed's MoE layer
// (deepspeed.moe.layer.MoE) for the experts of a built-in model. ExpertGateConfig: the gate of that
// layer, in the place of the routing that the model has; the initializers are the layer's defaults.

#include <cstdint>
#include <optional>

namespace ds::config {

enum class ExpertGateNoise { kNone, kJitter, kRSample };

struct ExpertGateConfig {
  double capacity_factor = 1.0;             // in training, of an even share of a rank's tokens
  double evaluation_capacity_factor = 1.0;  // in evaluation
  std::int64_t min_capacity = 4;            // tokens
  bool drops_tokens = true;                 // false: an expert takes all that come
  ExpertGateNoise noise = ExpertGateNoise::kNone;  // while training
  bool selects_at_random = true;  // one expert a token: which tokens a full expert keeps
  bool draws_second = true;       // two experts a token: the second one is drawn

  friend bool operator==(const ExpertGateConfig&, const ExpertGateConfig&) = default;
};

// The `moe` section.
struct MoeConfig {
  // These must hold of the model; 0: nothing is said.
  std::int64_t experts = 0, experts_per_token = 0;
  std::optional<ExpertGateConfig> gate;  // absent: the model's own routing
  bool residual = false;                 // an MLP next to the experts, mixed with them

  friend bool operator==(const MoeConfig&, const MoeConfig&) = default;
};

}  // namespace ds::config
