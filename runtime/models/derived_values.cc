#include "runtime/models/derived_values.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "runtime/base/check.h"
#include "runtime/models/quantized_weight.h"
#include "runtime/models/spec/lora_spec.h"

namespace ds::models {
namespace {

std::string LayerOf(const std::string& name) { return name.substr(0, name.rfind('.')); }

}  // namespace

DerivedValues::DerivedValues(const BlockList& model) {
  for (const auto& block : model.blocks()) {
    for (const auto& item : block->named_modules("", /*include_self=*/false)) {
      auto product = std::dynamic_pointer_cast<Product>(item.value());
      if (!product || (!product->quantized() && !product->has_magnitudes())) continue;
      layers_[block->FullName(item.key())] = std::move(product);
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
  const Product& layer = *found->second;
  const bool in_out = layer.layout() == WeightLayout::kInOut;
  const at::Tensor flat = at::empty({layer.in() * layer.out()}, layer.dtype());
  DS_RETURN_IF_ERROR(read(NameWeight(name), 0, flat));
  at::Tensor weight =
      in_out ? flat.view({layer.in(), layer.out()}).t() : flat.view({layer.out(), layer.in()});
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
  const Product& layer = *found->second;
  const at::Tensor weight = DequantizeWeight(bytes, *layer.quantized(), layer.dtype());
  return layer.layout() == WeightLayout::kInOut ? weight.t().contiguous() : weight;
}

}  // namespace ds::models
