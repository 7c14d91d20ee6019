#pragma once

// The feed-forward part of a layer with experts: a router sends every token to a few of them, whose
// results are added, weighted. One more expert, which all tokens go through, may stand beside them,
// and its result joins theirs as SharedExpertMix says.

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

// The matrix that says which experts a token goes to: no linear layer of transformers', so that no
// adapter stands beside it, and never quantised, for few bits would send tokens elsewhere.
class Router : public torch::nn::Module {
 public:
  // It computes in fp32 where it is `wide`.
  Router(std::int64_t experts, std::int64_t width, bool wide, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x) const;  // as Product

 private:
  at::Tensor weight_;  // [experts, width]
  bool wide_;
};

class DecoderExperts {
 public:
  // Registers its parts in `layer`. Tensor ranks have a part of every expert's width, and each has
  // the router whole. Of the experts it has those of this rank of `slice.experts`.
  DecoderExperts(torch::nn::Module& layer, const DecoderSlice& slice,
                 const at::TensorOptions& options);

  // x [B, S, width] -> [B, S, width]. Adds its load to the bundle's. A gate with capacity
  // (DecoderSpec::expert_gate) draws, and has another capacity, while it `trains`.
  at::Tensor forward(const at::Tensor& x, Bundle* bundle, bool trains) const;

 private:
  struct Expert {
    std::shared_ptr<ExpertWeight> gate, up, down;
  };
  void AddShared(torch::nn::Module& layer, const DecoderSlice& slice,
                 const at::TensorOptions& options);
  moe::Choice Choose(const at::Tensor& rows) const;
  at::Tensor ForwardGated(const at::Tensor& x, Bundle* bundle, bool trains) const;
  // Adds the shared expert's part to y; both are [B, S, width].
  at::Tensor MixShared(const at::Tensor& y, const at::Tensor& x, const Bundle& bundle) const;
  // Rows [N, width] go where `choice` says.
  at::Tensor Mix(const at::Tensor& rows, const moe::Choice& choice) const;
  at::Tensor RunExpert(const Expert& expert, const at::Tensor& rows) const;
  // Takes rows sorted by this rank's experts, so many of each.
  at::Tensor RunExperts(const at::Tensor& rows, const std::vector<std::int64_t>& counts) const;

  tensor_parallel::Group group_;
  moe::ExpertGroup ranks_;  // that have the experts between them
  std::int64_t expert_count_;
  moe::RouteRule rule_;
  std::optional<config::ExpertGateConfig> gate_;
  Activation activation_;
  std::shared_ptr<Router> router_;
  std::vector<Expert> experts_;         // this rank's
  std::unique_ptr<DecoderMlp> shared_;  // null without
  SharedExpertMix shared_mix_;
  std::shared_ptr<Product> shared_gate_;  // null without
};

// Takes the loads of all layers, one behind the other, out of the bundle: nothing where none has
// experts.
std::optional<moe::ExpertLoad> TakeExpertLoad(Bundle* bundle);

}  // namespace ds::models
