#pragma once

// ExpertLayer is a layer of experts for users' own models, like DeepSpeed's
// deepspeed.moe.layer.MoE. If one rank has all experts, results differ from that layer's in the
// last bits at most. It has a gate with capacity, the experts, and, if residual (Rajbhandari et al.
// 2022, PR-MoE), an MLP for all tokens, mixed with the experts' results. Layers of a model may have
// different numbers of experts (a pyramid).
//
// Each rank holds all experts, or, with `ranks`, an equal number of full experts, and tokens are
// sent to the ranks of their experts. Capacity and balance refer to a rank's own tokens, as in the
// reference. A model adds `balance_loss` of its layers, times a coefficient, to its loss. Threads:
// the thread of the module's caller.

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/parallel/expert/gating.h"
#include "runtime/parallel/expert/token_exchange.h"

namespace ds::moe {

// An expert, or the MLP of a residual layer: rows [N, width] -> [N, width].
class Expert : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& rows) = 0;
};

enum class GateNoise {
  kNone,
  kJitter,   // the gate's input is multiplied by up to 1 percent
  kRSample,  // top-1 only: Gumbel noise in the choice of an expert
};

struct ExpertLayerOptions {
  std::int64_t width = 0, experts = 1;
  std::int64_t k = 1;
  Capacity capacity = {.least = 4};  // in training
  double evaluation_factor = 1.0;    // the capacity factor in evaluation
  GateNoise noise = GateNoise::kNone;
  bool selects_at_random = true;  // top-1: which tokens a full expert keeps
  bool draws_second = true;       // top-2: the second expert, in evaluation too
  bool residual = false;
  ExpertGroup ranks = {};  // its size divides the experts
};

class ExpertLayer : public torch::nn::Module {
 public:
  // Returns uniform numbers in [0, 1), fp32, of this shape. Called in a fixed order. A model makes
  // them functions of its tokens' positions, so that a pass can be repeated.
  using Draw = std::function<at::Tensor(at::IntArrayRef shape)>;

  struct Result {
    at::Tensor output;        // shape of the input
    at::Tensor balance_loss;  // a scalar
    at::Tensor counts;        // [experts] int64, before any token is dropped
  };

  // Calls `make` for each expert of this rank, registered under its index among all experts, and
  // for the residual MLP.
  ExpertLayer(const ExpertLayerOptions& options,
              const std::function<std::shared_ptr<Expert>()>& make);

  // x [..., width]; `used` as in Top1Options, flat, or undefined. Throws c10::Error like the gate.
  Result forward(const at::Tensor& x, const Draw& draw, const at::Tensor& used = {});

  // Returns whether the parameter belongs to an expert that other ranks of the group do not have.
  bool HasApart(const at::Tensor& parameter) const;

 private:
  Routes Gate(const at::Tensor& rows, const Draw& draw, const at::Tensor& used);
  at::Tensor RunExperts(const at::Tensor& rows, const Routes& routes);

  const ExpertLayerOptions options_;
  torch::nn::Linear gate_ = nullptr;
  std::vector<std::shared_ptr<Expert>> experts_;  // this rank's
  std::shared_ptr<Expert> mlp_;                   // null if not residual
  torch::nn::Linear coefficient_ = nullptr;       // of the experts' part and of the MLP's part
};

}  // namespace ds::moe
