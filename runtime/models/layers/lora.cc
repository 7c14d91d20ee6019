#include "runtime/models/layers/lora.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>

#include <memory>
#include <string_view>

#include "runtime/models/layers/layers.h"
#include "runtime/plan/model/trained_names.h"

namespace ds::models {
namespace {

// A linear layer, or a matrix of an expert, within a decoder layer. Tensor ranks shard its outputs
// (column-parallel) or its inputs (row-parallel: Product::adds_up).
struct NamedProduct {
  std::string name;  // full name
  std::shared_ptr<Product> product;
  std::string path;                  // module path in its block
  std::int64_t first_input = 0;      // index of this rank's first input, if row-parallel
  bool has_part_of_outputs = false;  // column-parallel
  bool takes_adapter = true;         // false: ExpertWeight
};

// Returns the index of this rank's first input: above 0 only in a row-parallel product.
std::int64_t FindFirstInput(const Product& product, const checkpoint::Placement& placement) {
  if (!product.adds_up() || placement.boxes.empty()) return 0;
  return placement.boxes.front().offset.at(product.layout() == WeightLayout::kInOut ? 0 : 1);
}

// Lists the products within decoder layers, except the matrices of adapters. A router is no
// Product. The head's block is the one without a prefix. After QuantizeBase, a product has no
// weight.
std::vector<NamedProduct> ListProducts(const BlockList& model) {
  std::vector<NamedProduct> products;
  for (const auto& block : model.blocks()) {
    if (block->prefix().empty()) continue;
    for (const auto& item : block->named_modules("", /*include_self=*/false)) {
      auto product = std::dynamic_pointer_cast<Product>(item.value());
      const std::string& path = item.key();
      if (!product || IsLoraParameter(path + ".weight")) continue;
      const at::Tensor& weight = product->weight();
      const checkpoint::Placement placement =
          weight.defined() ? block->DescribePlacement(path + ".weight", weight)
                           : checkpoint::Placement();
      const bool is_part = !placement.boxes.empty();
      products.push_back({.name = block->FullName(path),
                          .product = product,
                          .path = path,
                          .first_input = FindFirstInput(*product, placement),
                          .has_part_of_outputs = is_part && !product->adds_up(),
                          .takes_adapter = product->as<ExpertWeight>() == nullptr});
    }
  }
  return products;
}

// Freezes all parameters except those that a PEFT folder trains in full (modules_to_save, bias).
// Called before the adapters are added, which therefore stay trained.
void FreezeOthers(const BlockList& model, const LoraSpec& spec) {
  for (const auto& block : model.blocks()) {
    for (const auto& item : block->named_parameters()) {
      item.value().set_requires_grad(spec.TrainsInFull(block->FullName(item.key())));
    }
  }
}

// Lists the products that can have an adapter.
std::vector<NamedProduct> ListAdaptable(const BlockList& model) {
  std::vector<NamedProduct> found = ListProducts(model);
  std::erase_if(found, [](const NamedProduct& each) { return !each.takes_adapter; });
  return found;
}

ModelNames NamesOf(const BlockList& model) {
  ModelNames names;
  for (const NamedProduct& each : ListAdaptable(model)) names.layers.push_back(each.name);
  for (const auto& block : model.blocks()) {
    for (const auto& item : block->named_parameters()) {
      names.parameters.push_back(block->FullName(item.key()));
    }
  }
  // A tied head reads block 0, and the token table is the first parameter there.
  for (int i = 0; i < model.size(); ++i) {
    if (!model.also_reads(i).empty()) names.tied_table = names.parameters.front();
  }
  return names;
}

}  // namespace

Status AddLora(BlockList& model, LoraSpec* spec, const tensor_parallel::TensorGroup& ranks,
               ModelScope part) {
  // One stage does not show which targets match a layer of another.
  if (part == ModelScope::kAll) DS_RETURN_IF_ERROR(ChooseLayers(NamesOf(model), spec));
  const std::vector<NamedProduct> products = ListAdaptable(model);
  FreezeOthers(model, *spec);
  for (const NamedProduct& each : products) {
    const auto adapter = spec->Find(each.name);
    if (!adapter) continue;
    DS_RETURN_IF_ERROR(CheckMagnitudes(*spec, each.name, each.product->adds_up()));
    each.product->AddAdapter(
        {.rank = adapter->rank,
         .scale = adapter->scale,
         .magnitudes = spec->magnitudes,
         .users = each.has_part_of_outputs ? ranks : tensor_parallel::TensorGroup(),
         .dropout = spec->dropout,
         .name = each.path,
         .first_input = each.first_input});
  }
  return OkStatus();
}

void QuantizeBase(BlockList& model, BaseFormat format) {
  for (const NamedProduct& each : ListProducts(model)) each.product->Quantize(format);
}

Status FreezeParameters(const BlockList& model, const std::vector<std::string>& patterns) {
  FrozenNames frozen(patterns);
  bool trains = false;
  for (const auto& block : model.blocks()) {
    for (const auto& item : block->named_parameters()) {
      if (frozen.Freezes(block->FullName(item.key()))) item.value().set_requires_grad(false);
      trains |= item.value().requires_grad();
    }
  }
  return frozen.Check(trains);
}

at::Tensor LoraMerger::Merge(const std::string& name, const at::Tensor& weight) const {
  constexpr std::string_view kWeight = ".weight";
  if (!name.ends_with(kWeight)) return weight;
  const std::string layer = name.substr(0, name.size() - kWeight.size());
  const auto adapter = spec_.Find(layer);
  // A narrows to the adapter's rank, B widens to the outputs.
  const auto narrow = tensors_.find(layer + ".lora_A.weight");
  const auto wide = tensors_.find(layer + ".lora_B.weight");
  if (!adapter || narrow == tensors_.end() || wide == tensors_.end()) return weight;
  at::Tensor change = at::mm(wide->second.to(at::kFloat), narrow->second.to(at::kFloat));
  change *= adapter->scale;
  if (weights_are_in_out_) change = change.t();
  at::Tensor merged = weight.to(at::kFloat) + change;
  if (const auto magnitudes = tensors_.find(layer + ".lora_magnitude_vector");
      magnitudes != tensors_.end()) {
    // DoRA: scales each output's row to its magnitude.
    const std::int64_t inputs = weights_are_in_out_ ? 0 : 1;  // the dimension of the inputs
    const at::Tensor factors =
        magnitudes->second.to(at::kFloat) / merged.norm(2, {inputs}, /*keepdim=*/false);
    merged = merged * factors.unsqueeze(inputs);
  }
  return merged.to(weight.scalar_type());
}

}  // namespace ds::models
