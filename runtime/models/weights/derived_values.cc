#include "runtime/models/weights/derived_values.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "runtime/base/check.h"
#include "runtime/models/kernels/quantized_weight.h"
#include "runtime/plan/model/lora_spec.h"

namespace ds::models {
namespace {

std::string LayerOf(const std::string& name) { return name.substr(0, name.rfind('.')); }

}  // namespace

DerivedValues::DerivedValues(const BlockList& model) {
  for (const auto& block : model.blocks()) {
    for (const auto& item : block->named_modules("", /*include_self=*/false)) {
      auto product = std::dynamic_pointer_cast<Product>(item.value());
      if (!product || (!product->quantized() && !product->has_magnitudes())) continue;
      Layer layer{.product = product, .in = product->in(), .out = product->out()};
      if (const at::Tensor& weight = product->weight(); weight.defined()) {
        const auto shape = block->DescribePlacement(item.key() + ".weight", weight).global_shape;
        const bool in_out = product->layout() == WeightLayout::kInOut;
        layer.in = shape[in_out ? 0 : 1];
        layer.out = shape[in_out ? 1 : 0];
      }
      layers_[block->FullName(item.key())] = std::move(layer);
    }
  }
}

bool DerivedValues::Has(const std::string& name) {
  return IsQuantizedParameter(name) || IsMagnitudeParameter(name);
}

std::string DerivedValues::NameWeight(const std::string& name) { return LayerOf(name) + ".weight"; }

StatusOr<at::Tensor> DerivedValues::Derive(const std::string& name, const ReadWeight& read) const {
  const auto found = layers_.find(LayerOf(name));
  if (found == layers_.end()) return InternalError(name + " is of no layer");
  const auto& [product, in, out] = found->second;
  const Product& layer = *product;
  const bool in_out = layer.layout() == WeightLayout::kInOut;
  const at::Tensor flat = at::empty({in * out}, layer.dtype());
  DS_RETURN_IF_ERROR(read(NameWeight(name), 0, flat));
  at::Tensor weight = in_out ? flat.view({in, out}).t() : flat.view({out, in});
  if (IsQuantizedParameter(name)) return QuantizeWeight(weight, *layer.quantized());
  if (const auto& quantized = layer.quantized()) {
    weight = DequantizeWeight(QuantizeWeight(weight, *quantized), *quantized, at::kFloat);
  }
  return weight.to(at::kFloat).norm(2, {1});
}

Status DerivedValues::Read(const std::string& name, std::int64_t first, const at::Tensor& values,
                           const ReadWeight& read) {
  if (name != last_name_) {
    DS_ASSIGN_OR_RETURN(last_, Derive(name, read));
    last_name_ = name;
  }
  values.view({-1}).copy_(last_.narrow(0, first, values.numel()));
  return OkStatus();
}

at::Tensor DerivedValues::Restore(const std::string& name, const at::Tensor& bytes) const {
  const auto found = layers_.find(LayerOf(name));
  DS_CHECK(found != layers_.end());
  const Product& layer = *found->second.product;
  const at::Tensor weight = DequantizeWeight(bytes, *layer.quantized(), layer.dtype());
  return layer.layout() == WeightLayout::kInOut ? weight.t().contiguous() : weight;
}

}  // namespace ds::models
