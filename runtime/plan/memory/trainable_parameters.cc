#include "runtime/plan/memory/trainable_parameters.h"

#include <algorithm>
#include <utility>

#include "runtime/plan/model/trained_names.h"

namespace ds::models {
namespace {

constexpr std::string_view kWeight = ".weight", kMagnitudes = ".lora_magnitude_vector";

// Returns the last component of the product's name if this is its weight, else "".
std::string NameProduct(const ParameterSize& parameter) {
  const bool is_outer =
      parameter.part == BlockComponent::kTable || parameter.part == BlockComponent::kOuterNorm;
  if (!parameter.is_matrix || is_outer || parameter.is_expert) return "";
  const std::string path = parameter.name.substr(0, parameter.name.size() - kWeight.size());
  return path.substr(path.rfind('.') + 1);
}

std::string FullNameOf(const BlockSizes& block, const std::string& name) {
  return block.prefix.empty() ? name : block.prefix + "." + name;
}

// Appends A [rank, in] and B [out, rank] after the product's own parameters.
void AddAdapters(const LoraSpec& lora, BlockSizes* block) {
  std::vector<ParameterSize> parameters;
  for (ParameterSize parameter : std::exchange(block->parameters, {})) {
    parameter.trained = lora.TrainsInFull(FullNameOf(*block, parameter.name));
    const std::string product = NameProduct(parameter);
    parameters.push_back(parameter);
    const std::string path = parameter.name.substr(0, parameter.name.size() - kWeight.size());
    const auto adapter = product.empty() ? std::nullopt : lora.Find(FullNameOf(*block, path));
    if (!adapter) continue;
    ParameterSize narrow = parameter, wide = parameter;
    narrow.rows = wide.columns = adapter->rank;
    narrow.name = path + ".lora_A.weight";
    narrow.drops_inputs = lora.dropout > 0.0;
    wide.name = path + ".lora_B.weight";
    narrow.trained = wide.trained = true;
    parameters.push_back(std::move(narrow));
    parameters.push_back(std::move(wide));
    if (!lora.magnitudes) continue;
    parameters.push_back(
        {.rows = parameter.rows, .name = path + std::string(kMagnitudes), .part = parameter.part});
  }
  block->parameters = std::move(parameters);
}

// Quantizes the weights of products, but not of adapters.
void Quantize(BaseFormat format, BlockSizes* block) {
  for (ParameterSize& parameter : block->parameters) {
    if (NameProduct(parameter).empty() || IsLoraParameter(parameter.name)) continue;
    const QuantizedLayout layout{
        .format = format, .rows = parameter.rows, .columns = parameter.columns};
    parameter.bytes = layout.bytes();
    parameter.name =
        parameter.name.substr(0, parameter.name.size() - kWeight.size()) + ".quantized_weight";
  }
}

bool Trains(const BlockSizes& block) {
  return std::any_of(block.parameters.begin(), block.parameters.end(),
                     [](const ParameterSize& parameter) { return parameter.trained; });
}

Status Freeze(const std::vector<std::string>& patterns, std::vector<BlockSizes>* blocks) {
  FrozenNames frozen(patterns);
  for (BlockSizes& block : *blocks) {
    for (ParameterSize& parameter : block.parameters) {
      if (frozen.Freezes(FullNameOf(block, parameter.name))) parameter.trained = false;
    }
  }
  return frozen.Check(std::any_of(blocks->begin(), blocks->end(), Trains));
}

void AddParameter(const ParameterSize& parameter, BlockTraining* training) {
  ComponentTraining& part = training->at(parameter.part);
  if (parameter.bytes > 0) part.unpacked = std::max(part.unpacked, parameter.numel());
  if (!parameter.trained) return;
  part.trains = true;
  part.reads_input = part.reads_input || parameter.is_matrix;
  if (parameter.name.ends_with(kMagnitudes)) part.scaled += parameter.rows;
  if (!parameter.name.ends_with(".lora_A.weight")) return;
  part.adapts = true;
  training->ranks += parameter.rows;
  if (parameter.drops_inputs) training->dropped += parameter.columns;
}

// Call after AddParameter of all parameters. DoRA computes row norms of the products that it
// adapts.
void AddNorms(const ParameterSize& parameter, BlockTraining* training) {
  ComponentTraining& part = training->at(parameter.part);
  if (part.scaled == 0 || parameter.trained || NameProduct(parameter).empty()) return;
  part.normed = std::max(part.normed, parameter.numel());
}

}  // namespace

ModelNames ListNames(const std::vector<BlockSizes>& blocks) {
  ModelNames names;
  for (const BlockSizes& block : blocks) {
    for (const ParameterSize& parameter : block.parameters) {
      const std::string name = FullNameOf(block, parameter.name);
      names.parameters.push_back(name);
      if (NameProduct(parameter).empty()) continue;
      names.layers.push_back(name.substr(0, name.size() - kWeight.size()));
    }
    if (!block.also_reads.empty()) names.tied_table = names.parameters.front();
  }
  return names;
}

Status ApplyTrainableParameters(const TrainableParameters& part, std::vector<BlockSizes>* blocks) {
  LoraSpec lora = part.lora.value_or(LoraSpec{});
  if (part.lora) DS_RETURN_IF_ERROR(ChooseLayers(ListNames(*blocks), &lora));
  for (BlockSizes& block : *blocks) {
    if (part.lora) AddAdapters(lora, &block);
    if (part.base) Quantize(*part.base, &block);
  }
  if (part.lora && part.base) {
    DS_RETURN_IF_ERROR(CheckUnquantized(lora, ListNames(*blocks).parameters));
  }
  return part.freeze.empty() ? OkStatus() : Freeze(part.freeze, blocks);
}

bool BlockTraining::of_attention() const {
  return input || trains(BlockComponent::kInputNorm) || trains(BlockComponent::kProjection);
}

bool BlockTraining::of_block() const {
  return input || std::any_of(parts.begin(), parts.end(),
                              [](const ComponentTraining& part) { return part.trains; });
}

std::vector<BlockTraining> ListTraining(const std::vector<BlockSizes>& blocks) {
  std::vector<BlockTraining> all;
  bool input = false;
  for (const BlockSizes& block : blocks) {
    BlockTraining training{.input = input};
    training.parts.fill({.trains = false, .reads_input = false});
    for (const ParameterSize& parameter : block.parameters) AddParameter(parameter, &training);
    for (const ParameterSize& parameter : block.parameters) AddNorms(parameter, &training);
    if (!block.also_reads.empty()) {
      training.at(BlockComponent::kTable).trains = blocks.front().parameters.front().trained;
    }
    all.push_back(training);
    input = input || Trains(block);
  }
  return all;
}

}  // namespace ds::models
