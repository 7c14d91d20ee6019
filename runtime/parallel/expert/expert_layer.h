#pragma once

// ExpertLayer: a layer of experts for a model of one's own, as DeepSpeed's deepspeed.moe.layer.MoE,
// which it equals to the last bits where one rank has all experts: a gate with capacity, the
// experts, and, where it is residual (Rajbhandari et al. 2022, PR-MoE), an MLP that all tokens go
// through, mixed with them. Layers of a model may have different numbers of experts (a pyramid).
//
// All ranks hold all experts, or those of `ranks` whole ones each, to whom tokens travel; capacity
// and balance are those of a rank's own tokens, as in the reference. A model adds `balance_loss` of
// its layers, times a coefficient, to its loss. Threads: those of the module's caller.

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

// An expert, and the MLP of a residual layer: rows [N, width] -> [N, width].
class Expert : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& rows) = 0;
};

enum class GateNoise {
  kNone,
  kJitter,   // what the gate sees is multiplied by up to 1 percent
  kRSample,  // top-1 alone: Gumbel noise where an expert is chosen
};

struct ExpertLayerOptions {
  std::int64_t width = 0, experts = 1;
  std::int64_t k = 1;
  Capacity capacity = {.least = 4};  // in training
  double evaluation_factor = 1.0;    // the capacity's, in evaluation
  GateNoise noise = GateNoise::kNone;
  bool selects_at_random = true;  // top-1: which tokens an expert that is full keeps
  bool draws_second = true;       // top-2: the second expert, in evaluation too
  bool residual = false;
  ExpertGroup ranks = {};  // its size divides the experts
};

class ExpertLayer : public torch::nn::Module {
 public:
  // Makes uniform numbers in [0, 1), fp32, of this shape. Called in a fixed order; a model makes
  // them functions of its tokens' places, so that a pass can be repeated.
  using Draw = std::function<at::Tensor(at::IntArrayRef shape)>;

  struct Result {
    at::Tensor output;        // as the input
    at::Tensor balance_loss;  // a scalar
    at::Tensor counts;        // [experts] int64, before any token is dropped
  };

  // Calls `make` for each expert that this rank has, registered by its number among all of them,
  // and for the residual MLP.
  ExpertLayer(const ExpertLayerOptions& options,
              const std::function<std::shared_ptr<Expert>()>& make);

  // x [..., width]; `used` as Top1Options', flat, or undefined. Throws c10::Error as the gate does.
  Result forward(const at::Tensor& x, const Draw& draw, const at::Tensor& used = {});

  // Tells whether the parameter is that of an expert that other ranks of the group do not have.
  bool HasApart(const at::Tensor& parameter) const;

 private:
  Routes Gate(const at::Tensor& rows, const Draw& draw, const at::Tensor& used);
  at::Tensor RunExperts(const at::Tensor& rows, const Routes& routes);

  const ExpertLayerOptions options_;
  torch::nn::Linear gate_ = nullptr;
  std::vector<std::shared_ptr<Expert>> experts_;  // this rank's
  std::shared_ptr<Expert> mlp_;                   // null without
  torch::nn::Linear coefficient_ = nullptr;       // of the experts' part and of the MLP's
};

}  // namespace ds::moe
