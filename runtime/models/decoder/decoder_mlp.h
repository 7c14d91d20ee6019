#pragma once

// The feed-forward part of one layer of a decoder: down(f(up(x))), or down(f(gate(x)) * up(x)).

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "runtime/models/block.h"
#include "runtime/models/decoder_slice.h"
#include "runtime/models/layers/layers.h"

namespace ds::models {

class DecoderMlp {
 public:
  // A Part has the MLP's place in the layer and its width between its products.
  struct Part {
    std::string path;
    std::int64_t width = 0;
  };
  // Registers its parts in `layer`.
  DecoderMlp(torch::nn::Module& layer, const DecoderSlice& slice, const at::TensorOptions& options);
  DecoderMlp(torch::nn::Module& layer, const DecoderSlice& slice, const at::TensorOptions& options,
             const Part& part);

  // x [B, S, width] -> [B, S, width]; drops where `trains`.
  at::Tensor forward(const at::Tensor& x, const Bundle& bundle, bool trains) const;

 private:
  // `users` share x (ShareAmongProducts), which stands at `place`.
  at::Tensor Widen(const at::Tensor& x, const tensor_parallel::Group& users,
                   const RandomPlace* place) const;

  tensor_parallel::Group group_;
  Activation activation_;
  double dropout_;
  std::shared_ptr<Product> gate_;     // null where it is fused or there is none
  std::shared_ptr<Product> gate_up_;  // null where it is not fused
  std::shared_ptr<Product> up_;       // null where it is fused
  std::shared_ptr<Product> down_;
};

}  // namespace ds::models
