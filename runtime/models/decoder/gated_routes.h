#pragma once

// GateRun: routes a decoder layer's tokens with a DeepSpeed gate (parallel/expert/gating.h) instead
// of the model's own rule. Its random numbers are functions of the tokens' positions: recomputation
// draws the same numbers, and so do ranks that have the same tokens. Capacity is computed from the
// tokens of this rank's micro-batch, padding included, as in DeepSpeed.
//
// Threads: use it on the thread of the module's caller.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/config/expert_gate_config.h"
#include "runtime/models/kernels/dropout.h"
#include "runtime/parallel/expert/gating.h"
#include "runtime/parallel/expert/routing.h"

namespace ds::models {

struct GatedChoice {
  moe::Choice choice;    // an expert index equal to the number of experts means dropped
  moe::ExpertLoad load;  // counted before any token is dropped
};

class GateRun {
 public:
  GateRun(const config::ExpertGateConfig& gate, std::int64_t k, std::int64_t experts, bool trains,
          const RandomPosition& origin)
      : gate_(gate), k_(k), experts_(experts), trains_(trains), origin_(origin) {}

  // Returns the fp32 router input for x [B, S, width].
  at::Tensor Jitter(const at::Tensor& x) const;

  // Returns the routes for logits [B * S, E], which the router computed from x; `sizes` starts with
  // B and S. Throws c10::Error under the same conditions as the gates.
  GatedChoice Choose(const at::Tensor& logits, at::IntArrayRef sizes) const;

 private:
  // Returns uniform fp32 numbers in (0, 1), one for each element of each row.
  at::Tensor Draw(at::IntArrayRef shape, DropoutSite site, const at::Tensor& like) const;
  moe::Routes Gate(const at::Tensor& logits, const at::Tensor& choice_draw,
                   const at::Tensor& selection_draw) const;

  const config::ExpertGateConfig& gate_;
  const std::int64_t k_, experts_;
  const bool trains_;
  const RandomPosition& origin_;
};

}  // namespace ds::models
