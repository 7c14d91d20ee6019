#pragma once

// DecoderExperts: the mixture-of-experts feed-forward part of a layer. A router sends every token
// to a few experts and adds their results, weighted. A shared expert, if there is one, processes
// all tokens; SharedExpertMix defines how its result is combined with the others.

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "runtime/models/bundle.h"
#include "runtime/models/decoder/decoder_mlp.h"
#include "runtime/models/decoder/expert_load.h"
#include "runtime/models/decoder_slice.h"
#include "runtime/models/layers/layers.h"
#include "runtime/parallel/expert/routing.h"
#include "runtime/parallel/expert/token_exchange.h"

namespace ds::models {

// The router's matrix. It is not a linear layer in transformers, so it gets no adapter. It is never
// quantised: the rounding would change the routing.
class Router : public torch::nn::Module {
 public:
  // Computes in fp32 if `wide`.
  Router(std::int64_t experts, std::int64_t width, bool wide, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x) const;  // as Product::forward

 private:
  at::Tensor weight_;  // [experts, width]
  bool wide_;
};

class DecoderExperts {
 public:
  // Registers its submodules in `layer`. Each tensor rank has a part of every expert's width and
  // the full router. Only the experts of this rank of `slice.experts` are created.
  DecoderExperts(torch::nn::Module& layer, const DecoderSlice& slice,
                 const at::TensorOptions& options);

  // [B, S, width] -> [B, S, width]. Adds the layer's expert load to the bundle. Padding (the
  // batch's "valid") goes to no expert. A gate with capacity (DecoderSpec::expert_gate) draws
  // random numbers, and uses its training capacity, if `trains`; it routes padding, too, as in
  // DeepSpeed.
  at::Tensor forward(const at::Tensor& x, Bundle* bundle, bool trains) const;

 private:
  struct Expert {
    std::shared_ptr<ExpertWeight> gate, up, down;
  };
  void AddShared(torch::nn::Module& layer, const DecoderSlice& slice,
                 const at::TensorOptions& options);
  // Padding, where `valid` [N] is false (undefined: nowhere), has no experts.
  moe::Choice Choose(const at::Tensor& rows, const at::Tensor& valid) const;
  at::Tensor ForwardGated(const at::Tensor& x, Bundle* bundle, bool trains) const;
  // Combines the shared expert's result with y; x and y are [B, S, width].
  at::Tensor MixShared(const at::Tensor& y, const at::Tensor& x, const Bundle& bundle) const;
  // Routes rows [N, width] to experts by `choice`.
  at::Tensor Mix(const at::Tensor& rows, const moe::Choice& choice) const;
  at::Tensor RunExpert(const Expert& expert, const at::Tensor& rows) const;
  // Takes rows sorted by this rank's experts, with counts[i] rows for expert i.
  at::Tensor RunExperts(const at::Tensor& rows, const std::vector<std::int64_t>& counts) const;

  tensor_parallel::TensorGroup group_;
  moe::ExpertGroup ranks_;  // the ranks that share the experts
  std::int64_t expert_count_;
  moe::RouteRule rule_;
  std::optional<config::ExpertGateConfig> gate_;
  Activation activation_;
  std::shared_ptr<Router> router_;
  std::vector<Expert> experts_;         // this rank's experts
  std::unique_ptr<DecoderMlp> shared_;  // null if there is none
  SharedExpertMix shared_mix_;
  std::shared_ptr<Product> shared_gate_;  // null if there is none
};

// Removes the loads of all layers from the bundle and returns them concatenated. Returns nothing if
// no layer has experts.
std::optional<moe::ExpertLoad> TakeExpertLoad(Bundle* bundle);

}  // namespace ds::models
