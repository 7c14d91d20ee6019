#include "runtime/inference/load_model.h"

#include <ATen/ops/empty_like.h>

#include "runtime/models/decoder/build_model.h"
#include "runtime/models/layers/lora.h"
#include "runtime/models/weights/adapter_folder.h"
#include "runtime/models/weights/weights.h"

namespace ds::inference {
namespace {

// The readers of the model's folder and of the adapters' folder; the second is null without
// adapters. Both must outlive this object.
struct Readers {
  const models::WeightReader& weights;
  const models::AdapterReader* adapter;
};

// Fills all parameters of a block. Readers fill CPU memory; a GPU gets a copy of it.
Status ReadBlock(const Readers& readers, Block& block) {
  for (const auto& item : block.named_parameters()) {
    const std::string name = block.FullName(item.key());
    const at::Tensor& value = item.value();
    const at::Tensor read =
        value.is_cpu() ? value : at::empty_like(value, value.options().device(at::kCPU));
    const bool adapts = readers.adapter != nullptr && readers.adapter->Has(name);
    DS_RETURN_IF_ERROR(adapts ? readers.adapter->Read(name, 0, read)
                              : readers.weights.Read(name, 0, read));
    if (!value.is_cpu()) value.data().copy_(read);
  }
  return OkStatus();
}

// Adds the adapters of a PEFT folder to the model, without their values, and returns a reader of
// the values. Returns null if `folder` is empty.
StatusOr<std::unique_ptr<models::AdapterReader>> OpenAdapter(const std::filesystem::path& folder,
                                                             bool has_weights, BlockList& model) {
  if (folder.empty()) return std::unique_ptr<models::AdapterReader>();
  if (!has_weights) {
    return FailedPreconditionError(folder.string() +
                                   ": the model has no weights that adapters could belong to");
  }
  DS_ASSIGN_OR_RETURN(models::LoraSpec spec, models::ReadLoraSpec(folder));
  DS_RETURN_IF_ERROR(models::AddLora(model, &spec).WithContext(folder.string()));
  DS_ASSIGN_OR_RETURN(auto reader, models::AdapterReader::Open(folder));
  DS_RETURN_IF_ERROR(reader->Check(model, spec.copies));
  return reader;
}

}  // namespace

StatusOr<c10::ScalarType> FindDtype(const std::string& name, const models::ModelConfig& config) {
  if (name == "float32") return c10::kFloat;
  if (name == "bfloat16") return c10::kBFloat16;
  if (name == "float16") return c10::kHalf;
  if (name != "auto") return InvalidArgumentError("unknown dtype '" + name + "'");
  // transformers 4 writes "torch_dtype".
  for (const char* key : {"dtype", "torch_dtype"}) {
    const auto found = config.json.find(key);
    if (found == config.json.end() || !found->is_string() || *found == "auto") continue;
    const auto said = FindDtype(found->get<std::string>(), config);
    if (said.ok()) return said;
    return UnimplementedError("config.json: " + std::string(key) + " = " + found->dump() +
                              " is not built; --dtype float32 runs the model in float32");
  }
  return c10::kFloat;
}

StatusOr<LoadedModel> LoadModel(const models::ModelConfig& config, c10::TensorOptions options,
                                std::uint64_t seed, const std::filesystem::path& adapter) {
  LoadedModel loaded{.blocks = models::BuildModel(config, options)};
  std::unique_ptr<models::WeightReader> weights;
  if (!config.folder.empty()) {
    DS_ASSIGN_OR_RETURN(weights, models::WeightReader::Open(config.folder));
  }
  loaded.has_weights = weights != nullptr;
  if (loaded.has_weights) {
    DS_ASSIGN_OR_RETURN(loaded.unused, weights->Check(*loaded.blocks));
    DS_RETURN_IF_ERROR(weights->CheckTiedHead(config.decoder, &loaded.unused));
  }
  DS_ASSIGN_OR_RETURN(const auto adapters,
                      OpenAdapter(adapter, loaded.has_weights, *loaded.blocks));
  for (const auto& block : loaded.blocks->blocks()) {
    models::AllocateParameters(*block);
    block->eval();
    if (!loaded.has_weights) block->Initialize(seed);
    if (loaded.has_weights) DS_RETURN_IF_ERROR(ReadBlock({*weights, adapters.get()}, *block));
  }
  return loaded;
}

}  // namespace ds::inference
