#include "runtime/inference/load_model.h"

#include <c10/core/TensorOptions.h>

#include "runtime/models/build_model.h"
#include "runtime/models/weights.h"

namespace ds::inference {
namespace {

Status ReadBlock(const models::WeightReader& weights, Block& block) {
  for (const auto& item : block.named_parameters()) {
    DS_RETURN_IF_ERROR(weights.Read(block.FullName(item.key()), 0, item.value()));
  }
  return OkStatus();
}

}  // namespace

StatusOr<c10::ScalarType> FindDtype(const std::string& name, const models::ModelConfig& config) {
  if (name == "float32") return c10::kFloat;
  if (name == "bfloat16") return c10::kBFloat16;
  if (name == "float16") return c10::kHalf;
  if (name != "auto") return InvalidArgumentError("unknown dtype '" + name + "'");
  for (const char* key : {"dtype", "torch_dtype"}) {
    const auto found = config.json.find(key);
    if (found == config.json.end() || !found->is_string() || *found == "auto") continue;
    const auto said = FindDtype(found->get<std::string>(), config);
    if (said.ok()) return said;
    return UnimplementedError("config.json: " + std::string(key) + " = " + found->dump() +
                              " is not built; --dtype float32 computes in another");
  }
  return c10::kFloat;
}

StatusOr<LoadedModel> LoadModel(const models::ModelConfig& config, c10::ScalarType dtype,
                                std::uint64_t seed) {
  LoadedModel loaded{.blocks = models::BuildModel(config, c10::TensorOptions(dtype))};
  std::unique_ptr<models::WeightReader> weights;
  if (!config.folder.empty()) {
    DS_ASSIGN_OR_RETURN(weights, models::WeightReader::Open(config.folder));
  }
  loaded.has_weights = weights != nullptr;
  if (loaded.has_weights) {
    DS_ASSIGN_OR_RETURN(loaded.unused, weights->Check(*loaded.blocks));
  }
  for (const auto& block : loaded.blocks->blocks()) {
    models::AllocateParameters(*block);
    block->eval();
    if (!loaded.has_weights) block->Initialize(seed);
    if (loaded.has_weights) DS_RETURN_IF_ERROR(ReadBlock(*weights, *block));
  }
  return loaded;
}

}  // namespace ds::inference
