#pragma once

// DecoderMlp: the feed-forward part of a decoder layer, down(f(up(x))) or down(f(gate(x)) * up(x)).

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "runtime/models/block.h"
#include "runtime/models/decoder_slice.h"
#include "runtime/models/layers/layers.h"

namespace ds::models {

class DecoderMlp {
 public:
  // The MLP's path in the layer and its intermediate width.
  struct MlpVariant {
    std::string path;
    std::int64_t width = 0;
  };
  // Registers its submodules in `layer`.
  DecoderMlp(torch::nn::Module& layer, const DecoderSlice& slice, const at::TensorOptions& options);
  DecoderMlp(torch::nn::Module& layer, const DecoderSlice& slice, const at::TensorOptions& options,
             const MlpVariant& part);

  // [B, S, width] -> [B, S, width]. Applies dropout if `trains`.
  at::Tensor forward(const at::Tensor& x, const Bundle& bundle, bool trains) const;

 private:
  // The ranks of `users` share x (ShareAmongProducts); `origin` is the RNG position of x.
  at::Tensor Widen(const at::Tensor& x, const tensor_parallel::TensorGroup& users,
                   const RandomPosition* origin) const;

  tensor_parallel::TensorGroup group_;
  Activation activation_;
  double dropout_;
  std::shared_ptr<Product> gate_;     // null if it is fused or there is none
  std::shared_ptr<Product> gate_up_;  // null if it is not fused
  std::shared_ptr<Product> up_;       // null if it is fused
  std::shared_ptr<Product> down_;
};

}  // namespace ds::models
