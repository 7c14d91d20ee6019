#pragma once

// GateRun: a decoder layer's routes by a gate of DeepSpeed's (parallel/expert/gating.h) in place of
// the model's own rule. Its random numbers are functions of the tokens' places, so that a pass that
// is computed again draws the same, as do the ranks that have the same tokens. Capacity is that of
// the tokens of this rank's micro-batch, as in DeepSpeed, padding included.
//
// Threads: those of the module's caller.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/config/expert_gate_config.h"
#include "runtime/models/kernels/dropout.h"
#include "runtime/parallel/expert/gating.h"
#include "runtime/parallel/expert/routing.h"

namespace ds::models {

struct GatedChoice {
  moe::Choice choice;    // experts that are the number of all experts are dropped
  moe::ExpertLoad load;  // before any token is dropped
};

class GateRun {
 public:
  GateRun(const config::ExpertGateConfig& gate, std::int64_t k, std::int64_t experts, bool trains,
          const RandomPlace& place)
      : gate_(gate), k_(k), experts_(experts), trains_(trains), place_(place) {}

  // Makes the fp32 values that the router sees of x [B, S, width].
  at::Tensor Jitter(const at::Tensor& x) const;

  // Routes of logits [B * S, E], the router's of x with the first sizes B and S. Throws c10::Error
  // as the gates do.
  GatedChoice Choose(const at::Tensor& logits, at::IntArrayRef sizes) const;

 private:
  // Uniform numbers in (0, 1), fp32, one for each row of `rows` and each of its elements.
  at::Tensor Draw(at::IntArrayRef shape, DropoutSite site, const at::Tensor& like) const;
  moe::Routes Gate(const at::Tensor& logits, const at::Tensor& choice_draw,
                   const at::Tensor& selection_draw) const;

  const config::ExpertGateConfig& gate_;
  const std::int64_t k_, experts_;
  const bool trains_;
  const RandomPlace& place_;
};

}  // namespace ds::models
