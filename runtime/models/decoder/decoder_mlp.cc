#include "runtime/models/decoder/decoder_mlp.h"

#include "runtime/models/layers/activations.h"
#include "runtime/models/layers/shared_products.h"

namespace ds::models {

DecoderMlp::DecoderMlp(torch::nn::Module& layer, const DecoderSlice& slice,
                       const at::TensorOptions& options)
    : DecoderMlp(layer, slice, options,
                 {.path = slice.spec().names.mlp, .width = slice.spec().mlp_width}) {}

DecoderMlp::DecoderMlp(torch::nn::Module& layer, const DecoderSlice& slice,
                       const at::TensorOptions& options, const MlpVariant& part)
    : group_(slice.group),
      activation_(slice.spec().activation),
      dropout_(slice.spec().residual_dropout) {
  const DecoderSpec& spec = slice.spec();
  const WeightNames& names = spec.names;
  const WeightLayout layout = spec.weights_are_in_out ? WeightLayout::kInOut : WeightLayout::kOutIn;
  const auto add = [&](const char* name, std::int64_t in, std::int64_t out,
                       const tensor_parallel::TensorGroup& add_up = {}) {
    const Product::Shape shape{
        .in = in, .out = out, .bias = spec.mlp_bias, .layout = layout, .add_up = add_up};
    return RegisterAt(layer, {part.path, name}, MakeProduct(shape, options));
  };
  if (spec.fused_gate_up) {
    gate_up_ = add(names.gate_up, spec.width, 2 * part.width);
  } else {
    if (spec.gated_mlp) gate_ = add(names.gate, spec.width, part.width);
    up_ = add(names.up, spec.width, part.width);
  }
  down_ = add(names.down, part.width, spec.width, slice.group);
}

at::Tensor DecoderMlp::Widen(const at::Tensor& x, const tensor_parallel::TensorGroup& users,
                             const RandomPosition* origin) const {
  const auto multiply = [&](const std::vector<const Product*>& products) {
    return ShareAmongProducts(x, products, users, "feed-forward", origin);
  };
  if (gate_up_) {
    const auto parts = multiply({&*gate_up_})[0].chunk(2, /*dim=*/-1);
    return GatedActivation(activation_, parts[0], parts[1]);
  }
  if (!gate_) return Activate(activation_, multiply({&*up_})[0]);
  const auto parts = multiply({&*gate_, &*up_});
  return GatedActivation(activation_, parts[0], parts[1]);
}

at::Tensor DecoderMlp::forward(const at::Tensor& x, const Bundle& bundle, bool trains) const {
  // Shared once for all tiles, which run again in the backward pass.
  const bool is_tiled = bundle.mlp_tiles.count > 1;
  const at::Tensor input = is_tiled ? group_.Share(x, "feed-forward") : x;
  const auto users = is_tiled ? tensor_parallel::TensorGroup() : group_;
  // The rows of a tile may belong to several samples, so they have no RandomPosition.
  const RandomPosition origin = bundle.random;
  const at::Tensor y =
      RunTiled(input, bundle.mlp_tiles, [=, this](const at::Tensor& rows, std::int64_t) {
        const RandomPosition* of_rows = is_tiled ? nullptr : &origin;
        return down_->forward(Widen(rows, users, of_rows), of_rows);
      });
  return Dropout(y, {.probability = trains ? dropout_ : 0.0,
                     .origin = bundle.random,
                     .site = DropoutSite::kMlpOutput});
}

}  // namespace ds::models
