#include "runtime/models/layers/tiled_linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/models/layers/layers.h"

namespace ds::models {
namespace {

struct FeatureRange {
  std::int64_t start = 0, count = 0;
};

FeatureRange FindFeatures(std::int64_t features, std::int64_t splits, std::int64_t part) {
  const std::int64_t least = features / splits, larger = features % splits;
  return {part * least + std::min(part, larger), least + (part < larger ? 1 : 0)};
}

class LinearTile : public Block {
 public:
  LinearTile(const TiledLinear& layer, std::int64_t of_out, std::int64_t of_in,
             const at::TensorOptions& options)
      : Block(layer.name + ".linears." + std::to_string(of_out) + "." + std::to_string(of_in)),
        layer_(layer),
        of_out_(of_out),
        of_in_(of_in),
        inputs_(FindFeatures(layer.in, layer.in_splits, of_in)) {
    const Product::Shape shape{.in = inputs_.count,
                               .out = FindFeatures(layer.out, layer.out_splits, of_out).count,
                               .bias = layer.bias && is_last_input()};
    // Parameters that a block registers itself have the names of a Linear's.
    tile_ = std::make_shared<Linear>(shape, options);
    for (const auto& item : tile_->named_parameters()) register_parameter(item.key(), item.value());
  }

  Bundle forward(Bundle bundle) override {
    at::Tensor& input = bundle.extras[layer_.name + ".input"];
    if (of_out_ == 0 && of_in_ == 0) input = std::exchange(bundle.hidden, at::Tensor());
    const at::Tensor partial = tile_->forward(input.narrow(-1, inputs_.start, inputs_.count));
    at::Tensor& sum = bundle.extras[OutputName(of_out_)];
    sum = of_in_ == 0 ? partial : sum + partial;
    if (is_last_input() && of_out_ + 1 == layer_.out_splits) bundle.hidden = TakeOutputs(&bundle);
    return bundle;
  }

 private:
  bool is_last_input() const { return of_in_ + 1 == layer_.in_splits; }
  std::string OutputName(std::int64_t part) const {
    return layer_.name + ".output." + std::to_string(part);
  }
  at::Tensor TakeOutputs(Bundle* bundle) const {
    std::vector<at::Tensor> parts;
    for (std::int64_t i = 0; i < layer_.out_splits; ++i) {
      parts.push_back(bundle->extras.extract(OutputName(i)).mapped());
    }
    bundle->extras.erase(layer_.name + ".input");
    return parts.size() == 1 ? parts[0] : at::cat(parts, -1);
  }

  const TiledLinear layer_;
  const std::int64_t of_out_, of_in_;
  const FeatureRange inputs_;
  std::shared_ptr<Linear> tile_;
};

}  // namespace

Status AddTiledLinear(BlockList& model, const TiledLinear& layer,
                      const at::TensorOptions& options) {
  for (const auto& [splits, features, what] : {std::tuple(layer.in_splits, layer.in, "in"),
                                               std::tuple(layer.out_splits, layer.out, "out")}) {
    if (splits >= 1 && splits <= features) continue;
    return InvalidArgumentError(layer.name + ": " + what + "_splits is " + std::to_string(splits) +
                                ", and " + std::to_string(features) +
                                " features can be split into 1 to as many parts");
  }
  for (std::int64_t of_out = 0; of_out < layer.out_splits; ++of_out) {
    for (std::int64_t of_in = 0; of_in < layer.in_splits; ++of_in) {
      model.Add(std::make_shared<LinearTile>(layer, of_out, of_in, options));
    }
  }
  return OkStatus();
}

}  // namespace ds::models
