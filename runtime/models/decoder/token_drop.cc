#include "runtime/models/decoder/token_drop.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <string>

#include "runtime/base/philox.h"
#include "runtime/models/decoder/decoder_layer.h"
#include "runtime/models/kernels/dropout.h"
#include "runtime/models/layers/token_positions.h"

namespace ds::models {

StatusOr<std::shared_ptr<TokenDrop>> AddTokenDrop(const BlockList& model, std::int64_t total,
                                                  const std::vector<std::int64_t>& layers) {
  const std::int64_t has = model.model_size() - 2;  // between embedding and head
  if (has != total) {
    return InvalidArgumentError("data_efficiency.data_routing.random_ltd.total_layer_num is " +
                                std::to_string(total) + ", and the model has " +
                                std::to_string(has) + " layers");
  }
  auto drop = std::make_shared<TokenDrop>();
  for (int i = 0; i < model.size(); ++i) {
    auto* const layer = dynamic_cast<DecoderLayer*>(&model.block(i));
    const std::int64_t index = model.index_in_model(i) - 1;
    if (layer == nullptr || std::find(layers.begin(), layers.end(), index) == layers.end())
      continue;
    layer->DropTokens(drop);
  }
  return drop;
}

at::Tensor ChooseTokens(std::int64_t samples, std::int64_t tokens, std::int64_t kept,
                        const RandomPosition& origin, c10::Device device) {
  RandomPosition own = origin;  // separate from the layer's own draws
  own.key = ExtendKey(origin.key, "dropped tokens");
  const at::Tensor draws = UniformNoise({samples, 1, tokens}, {.origin = own}, 1.0,
                                        at::TensorOptions(at::kFloat).device(device));
  // Ties are broken by token order, on every device.
  const at::Tensor order = draws.squeeze(1).argsort(/*stable=*/true, /*dim=*/1);
  return std::get<0>(order.narrow(1, 0, kept).sort(/*dim=*/1));
}

Bundle KeepTokens(const Bundle& bundle, const at::Tensor& chosen) {
  Bundle kept = bundle;
  // Tokens keep their original positions.
  kept.batch["positions"] =
      FindPositions(bundle.batch).expand({chosen.size(0), bundle.hidden.size(1)});
  for (auto& [name, tensor] : kept.batch) tensor = tensor.gather(1, chosen);
  kept.hidden =
      bundle.hidden.gather(1, chosen.unsqueeze(-1).expand({-1, -1, bundle.hidden.size(2)}));
  return kept;
}

}  // namespace ds::models
