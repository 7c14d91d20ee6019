#include "runtime/rank/train_model.h"

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "runtime/comm/agreement.h"
#include "runtime/models/decoder/decoder_embedding.h"
#include "runtime/models/initialize.h"
#include "runtime/plan/memory/trained_rules.h"
#include "runtime/plan/model/trained_names.h"

namespace ds::rank {
namespace {

// Draws values that no folder provides.
Status DrawValues(const BlockList& model, std::uint64_t seed, const std::string& name,
                  std::int64_t first, const at::Tensor& values) {
  for (const auto& block : model.blocks()) {
    const std::string& prefix = block->prefix();
    if (!prefix.empty() && !name.starts_with(prefix + ".")) continue;
    const std::string inside = prefix.empty() ? name : name.substr(prefix.size() + 1);
    if (!block->named_parameters().contains(inside)) continue;
    // The range refers to the full parameter; this rank may hold a part.
    const auto dimensions = block->named_parameters()[inside].dim();
    models::FillRange(name, block->DescribeFirstValue(inside, dimensions), seed, {first, values});
    return OkStatus();
  }
  return InternalError(name + " is of no block");
}

// Freezes the parameters of `part` that are frozen in the full model. Both are adapted and
// quantised alike.
void CopyFrozen(const BlockList& full, const BlockList& part) {
  std::map<std::string, bool> trains;  // by full name
  for (const auto& block : full.blocks()) {
    for (const auto& item : block->named_parameters()) {
      trains[block->FullName(item.key())] = item.value().requires_grad();
    }
  }
  for (const auto& block : part.blocks()) {
    for (const auto& item : block->named_parameters()) {
      const auto in_full = trains.find(block->FullName(item.key()));
      if (in_full != trains.end() && !in_full->second) item.value().set_requires_grad(false);
    }
  }
}

// Returns the writer on rank 0, which writes, and null elsewhere. All ranks return the same status.
template <typename Writer, typename Create>
StatusOr<std::unique_ptr<Writer>> CreateOnFirst(comm::Communicator& world, const Create& create) {
  std::unique_ptr<Writer> writer;
  Status status;
  if (world.rank() == 0) {
    auto created = create();
    status = created.status();
    if (created.ok()) writer = *std::move(created);
  }
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(status, world));
  return writer;
}

}  // namespace

optim::ParameterGrouper MakeGrouper(const config::TrainJob& job, int blocks) {
  const optim::ParameterGrouper decays =
      job.no_decay_on_norms_and_biases ? optim::NoDecayOnNormsAndBiases : optim::OneGroup;
  if (job.layer_decay == 1.0) return decays;
  return optim::WithLayerwiseRates(decays, blocks, job.layer_decay);
}

engine::ValueReader TrainModel::MakeReader(std::uint64_t seed) const {
  if (weights == nullptr && derived == nullptr) return {};
  const engine::ValueReader read_base = [this, seed](const std::string& name, std::int64_t first,
                                                     const at::Tensor& values) {
    if (weights != nullptr) return weights->Read(name, first, values);
    return DrawValues(*full, seed, name, first, values);
  };
  return [this, seed, read_base](const std::string& name, std::int64_t first,
                                 const at::Tensor& values) {
    const bool adapts = models::IsLoraParameter(name);
    if (adapter != nullptr && adapter->Has(name)) return adapter->Read(name, first, values);
    if (models::DerivedValues::Has(name)) return derived->Read(name, first, values, read_base);
    return adapts ? DrawValues(*alike, seed, name, first, values) : read_base(name, first, values);
  };
}

std::string DescribeUnused(const TrainModel& model, const models::ModelConfig& config) {
  return config.folder.string() + ": " + std::to_string(model.unused.size()) +
         " stored tensors are not part of the model, " + model.unused.front() +
         " for one; they are left out";
}

namespace {

std::vector<std::string> ListNames(const BlockList& model) {
  std::vector<std::string> names;
  for (const auto& block : model.blocks()) {
    for (const auto& item : block->named_parameters()) names.push_back(block->FullName(item.key()));
  }
  return names;
}

// Adapts, quantises and freezes the blocks as configured in the job.
Status PrepareBlocks(const config::TrainJob& job, const models::ModelRanks& ranks,
                     TrainModel* model) {
  BlockList& blocks = *model->blocks;
  BlockList& alike = *model->alike;
  const bool is_part = &blocks != &alike;
  models::AddEmbeddingNoise(blocks, job.neftune_noise_alpha);
  if (model->lora) {
    DS_RETURN_IF_ERROR(models::AddLora(alike, &*model->lora, ranks.tensor));
    if (is_part) {
      DS_RETURN_IF_ERROR(
          models::AddLora(blocks, &*model->lora, ranks.tensor, models::ModelScope::kStage));
    }
  }
  if (!job.quantize_base.empty()) {
    DS_ASSIGN_OR_RETURN(const auto format, models::ParseBaseFormat(job.quantize_base));
    models::QuantizeBase(alike, format);
    if (is_part) models::QuantizeBase(blocks, format);
    if (model->lora) {
      DS_RETURN_IF_ERROR(models::CheckUnquantized(*model->lora, ListNames(alike)));
    }
  }
  if (!job.freeze.empty()) DS_RETURN_IF_ERROR(models::FreezeParameters(alike, job.freeze));
  if (is_part) CopyFrozen(alike, blocks);
  if (!job.quantize_base.empty() || (model->lora && model->lora->magnitudes)) {
    model->derived = std::make_unique<models::DerivedValues>(alike);
  }
  return OkStatus();
}

}  // namespace

StatusOr<TrainModel> OpenTrainModel(const config::TrainJob& job, const models::ModelConfig& config,
                                    const at::TensorOptions& options,
                                    const models::ModelRanks& ranks,
                                    const std::optional<models::StageBlocks>& part) {
  TrainModel model{.blocks = models::BuildModel(config, options, ranks, part)};
  const bool is_part = part || ranks.experts.size() > 1;
  models::ModelRanks with_all_experts = ranks;
  with_all_experts.experts = {};
  const auto build_all = [&] { return models::BuildModel(config, options, with_all_experts); };
  model.alike = is_part ? build_all() : model.blocks;
  model.full = job.quantize_base.empty() ? model.alike : build_all();
  DS_ASSIGN_OR_RETURN(model.lora, engine::FindLora(job));
  DS_RETURN_IF_ERROR(engine::CheckQuantizedRanks(job, ranks.tensor.size(), ranks.experts.size()));
  DS_RETURN_IF_ERROR(PrepareBlocks(job, ranks, &model));
  if (!config.folder.empty()) {
    DS_ASSIGN_OR_RETURN(model.weights, models::WeightReader::Open(config.folder));
  }
  if (model.weights != nullptr) {
    DS_ASSIGN_OR_RETURN(model.unused, model.weights->Check(*model.full));
    DS_RETURN_IF_ERROR(model.weights->CheckTiedHead(config.decoder, &model.unused));
  }
  DS_RETURN_IF_ERROR(engine::CheckAdapterHasBase(job, model.weights != nullptr));
  if (job.lora_adapter.empty()) return model;
  DS_ASSIGN_OR_RETURN(model.adapter, models::AdapterReader::Open(job.lora_adapter));
  DS_RETURN_IF_ERROR(model.adapter->Check(*model.alike, model.lora->copies));
  return model;
}

StatusOr<std::unique_ptr<models::AdapterWriter>> ModelExport::CreateAdapterWriter(
    comm::Communicator& world) const {
  return CreateOnFirst<models::AdapterWriter>(world, [&] {
    return models::AdapterWriter::Create(
        job_.save_hf_dir, *model_.alike,
        models::MakeAdapterConfig(*model_.lora, job_.model, config_.decoder.weights_are_in_out),
        model_.lora->full, model_.lora->copies);
  });
}

StatusOr<std::unique_ptr<models::ModelWriter>> ModelExport::CreateModelWriter(
    comm::Communicator& world) const {
  return CreateOnFirst<models::ModelWriter>(
      world, [&] { return models::ModelWriter::Create(job_.save_hf_dir, config_, *model_.full); });
}

Status ModelExport::Try(comm::Communicator& world) const {
  return writes_adapters() ? CreateAdapterWriter(world).status()
                           : CreateModelWriter(world).status();
}

Status ModelExport::Write(Engine& engine) const {
  return writes_adapters() ? WriteAdapters(engine) : WriteFullModel(engine);
}

Status ModelExport::WriteAdapters(Engine& engine) const {
  DS_ASSIGN_OR_RETURN(const auto writer, CreateAdapterWriter(engine.world()));
  DS_RETURN_IF_ERROR(engine.ExportParameters([&](const std::string& name, const at::Tensor& value) {
    const bool is_saved = models::IsLoraParameter(name) || model_.lora->full.contains(name);
    return is_saved ? writer->Write(name, value) : OkStatus();
  }));
  return comm::AgreeOnStatus(writer == nullptr ? OkStatus() : writer->Finish(), engine.world());
}

Status ModelExport::WriteFullModel(Engine& engine) const {
  DS_ASSIGN_OR_RETURN(const auto writer, CreateModelWriter(engine.world()));
  models::LoraMerger merger(model_.lora.value_or(models::LoraSpec()),
                            config_.decoder.weights_are_in_out);
  if (model_.lora) {
    DS_RETURN_IF_ERROR(
        engine.ExportParameters([&](const std::string& name, const at::Tensor& value) {
          if (models::IsLoraParameter(name)) merger.Take(name, value);
          return OkStatus();
        }));
  }
  DS_RETURN_IF_ERROR(engine.ExportParameters([&](const std::string& name, const at::Tensor& value) {
    if (models::IsLoraParameter(name)) return OkStatus();
    if (!models::IsQuantizedParameter(name)) return writer->Write(name, merger.Merge(name, value));
    const std::string weight = models::DerivedValues::NameWeight(name);
    return writer->Write(weight, merger.Merge(weight, model_.derived->Restore(name, value)));
  }));
  return comm::AgreeOnStatus(writer == nullptr ? OkStatus() : writer->Finish(), engine.world());
}

}  // namespace ds::rank
