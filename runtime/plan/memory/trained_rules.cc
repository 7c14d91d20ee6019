#include "runtime/plan/memory/trained_rules.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "runtime/plan/memory/block_sizes.h"
#include "runtime/plan/memory/trainable_parameters.h"
#include "runtime/plan/model/count_parameters.h"
#include "runtime/plan/model/tensor_plan.h"
#include "runtime/plan/model/trained_names.h"
#include "runtime/plan/model/weight_files.h"

namespace ds::engine {

StatusOr<std::optional<models::LoraSpec>> FindLora(const config::TrainJob& job) {
  if (!job.lora_adapter.empty()) {
    DS_ASSIGN_OR_RETURN(models::LoraSpec spec, models::ReadLoraSpec(job.lora_adapter));
    if (job.lora_dropout >= 0.0) spec.dropout = job.lora_dropout;
    return std::optional(std::move(spec));
  }
  if (job.lora_rank == 0) return std::optional<models::LoraSpec>();
  models::LoraSpec spec{
      .rank = job.lora_rank,
      .alpha = job.lora_alpha > 0.0 ? job.lora_alpha : 2.0 * static_cast<double>(job.lora_rank),
      .rank_stabilised = job.lora_rslora,
      .magnitudes = job.lora_dora,
      .dropout = std::max(job.lora_dropout, 0.0)};
  DS_RETURN_IF_ERROR(models::ReadTargets(job.lora_targets, &spec).WithContext("--lora_targets"));
  return std::optional(std::move(spec));
}

StatusOr<models::TrainableParameters> FindTrainableParameters(const config::TrainJob& job) {
  models::TrainableParameters part{.freeze = job.freeze};
  DS_ASSIGN_OR_RETURN(part.lora, FindLora(job));
  if (!job.quantize_base.empty()) {
    DS_ASSIGN_OR_RETURN(part.base, models::ParseBaseFormat(job.quantize_base));
  }
  return part;
}

namespace {

// A rank has a part of an adapted layer's rows if it has a part of the inputs of its A.
Status CheckShardedMagnitudes(const models::LoraSpec& lora, const models::DecoderSpec& model,
                              int tensor) {
  DS_ASSIGN_OR_RETURN(const auto plan, models::TensorPlan::Create(model, 0, tensor));
  for (const auto& [layer, adapter] : lora.layers) {
    const bool rows_are_shared = plan.SliceOf(layer + ".lora_A.weight").has_value();
    DS_RETURN_IF_ERROR(models::CheckMagnitudes(lora, layer, rows_are_shared));
  }
  return OkStatus();
}

}  // namespace

Status CheckQuantizedRanks(const config::TrainJob& job, int tensor, int experts) {
  if (experts > 1 && !job.quantize_base.empty()) {
    return UnimplementedError(
        "--quantize_base of experts that ranks have between them is not built: ZeRO-3 shares the "
        "bytes out");
  }
  if (tensor == 1 || job.quantize_base.empty()) return OkStatus();
  return UnimplementedError(
      "--quantize_base of matrices that tensor ranks have between them is not "
      "built: ZeRO-3 shares the bytes out");
}

Status CheckTrainableParameters(const config::TrainJob& job, const config::ParallelConfig& parallel,
                                const models::DecoderSpec& model) {
  DS_ASSIGN_OR_RETURN(models::TrainableParameters part, FindTrainableParameters(job));
  if (part.is_all()) return OkStatus();
  DS_RETURN_IF_ERROR(CheckQuantizedRanks(job, parallel.tensor, parallel.expert));
  if (part.lora && part.lora->dropout > 0.0 && job.mlp_tiles != 1) {
    return UnimplementedError(
        "--tile_mlp with dropout of adapters is not built: leave it out, or add --lora_dropout 0");
  }
  DS_RETURN_IF_ERROR(models::CountBlocks(model).status());  // checks that they can be listed
  std::vector<models::BlockSizes> blocks = models::ListBlockSizes(model);
  if (part.lora && parallel.tensor > 1) {
    DS_RETURN_IF_ERROR(models::ChooseLayers(models::ListNames(blocks), &*part.lora));
    DS_RETURN_IF_ERROR(CheckShardedMagnitudes(*part.lora, model, parallel.tensor));
  }
  return models::ApplyTrainableParameters(part, &blocks);
}

Status CheckAdapterHasBase(const config::TrainJob& job, bool has_weights) {
  if (job.lora_adapter.empty() || has_weights) return OkStatus();
  return NotFoundError("--lora_adapter " + job.lora_adapter +
                       ": --model has no weights that it could belong to: give the folder of its "
                       "base model, with its safetensors");
}

Status CheckWeights(const config::TrainJob& job, const std::filesystem::path& folder,
                    const models::DecoderSpec& model) {
  DS_ASSIGN_OR_RETURN(const auto files, models::WeightFiles::Open(folder));
  DS_RETURN_IF_ERROR(CheckAdapterHasBase(job, files.has_value()));
  if (!files) return OkStatus();
  DS_RETURN_IF_ERROR(models::CountBlocks(model).status());  // checks that they can be listed
  for (const models::StoredParameter& parameter : models::ListStored(model)) {
    DS_RETURN_IF_ERROR(files->Check(parameter.name, parameter.shape));
  }
  // Ranks compare it with the table's.
  const std::string head = std::string(model.names.head) + ".weight";
  if (!model.tied_head || !files->Has(head)) return OkStatus();
  return files->Check(head, std::array{model.vocabulary, model.width});
}

}  // namespace ds::engine
