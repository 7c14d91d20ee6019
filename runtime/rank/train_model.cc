#include "runtime/rank/train_model.h"

#include <functional>
#include <map>
#include <utility>

#include "runtime/comm/agreement.h"

namespace ds::rank {
namespace {

StatusOr<std::optional<models::LoraSpec>> FindLora(const config::TrainJob& job) {
  if (!job.lora_adapter.empty()) {
    DS_ASSIGN_OR_RETURN(models::LoraSpec spec, models::ReadLoraSpec(job.lora_adapter));
    return std::optional(std::move(spec));
  }
  if (job.lora_rank == 0) return std::optional<models::LoraSpec>();
  return std::optional(models::LoraSpec{
      .rank = job.lora_rank,
      .alpha = job.lora_alpha > 0.0 ? job.lora_alpha : 2.0 * static_cast<double>(job.lora_rank),
      .rank_stabilised = job.lora_rslora,
      .targets = job.lora_targets});
}

// Draws what no folder has; the block is the one whose name is the longest part of the parameter's.
Status DrawValues(const BlockList& model, std::uint64_t seed, const std::string& name,
                  std::int64_t first, const at::Tensor& values) {
  const Block* owner = nullptr;
  for (const auto& block : model.blocks()) {
    const bool owns = !block->prefix().empty() && name.starts_with(block->prefix() + ".");
    if (owns && (owner == nullptr || block->prefix().size() > owner->prefix().size())) {
      owner = block.get();
    }
  }
  if (owner == nullptr) return InternalError(name + " is of no block");
  owner->InitializeRange(name, seed, first, values);
  return OkStatus();
}

// Freezes what is frozen in the whole model.
void FreezeAlike(const BlockList& whole, const BlockList& part) {
  std::map<std::string, bool> trains;  // by full name
  for (const auto& block : whole.blocks()) {
    for (const auto& item : block->named_parameters()) {
      trains[block->FullName(item.key())] = item.value().requires_grad();
    }
  }
  for (const auto& block : part.blocks()) {
    for (const auto& item : block->named_parameters()) {
      item.value().set_requires_grad(trains.at(block->FullName(item.key())));
    }
  }
}

// Null on all ranks but the first, which writes. All ranks return the same status.
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

engine::ValueReader TrainModel::MakeReader(std::uint64_t seed) const {
  if (weights == nullptr) return {};
  return [this, seed](const std::string& name, std::int64_t first, const at::Tensor& values) {
    if (!models::IsLoraParameter(name)) return weights->Read(name, first, values);
    if (adapter != nullptr) return adapter->Read(name, first, values);
    return DrawValues(*blocks, seed, name, first, values);
  };
}

StatusOr<TrainModel> OpenTrainModel(const config::TrainJob& job, const models::ModelConfig& config,
                                    const at::TensorOptions& options,
                                    const models::ModelRanks& ranks,
                                    const std::optional<models::StagePart>& part) {
  TrainModel model{.blocks = models::BuildModel(config, options, ranks, part)};
  model.whole = part ? models::BuildModel(config, options, ranks) : model.blocks;
  DS_ASSIGN_OR_RETURN(model.lora, FindLora(job));
  if (model.lora && part) {
    return UnimplementedError("LoRA is not built with a pipeline of several stages");
  }
  if (model.lora && ranks.tensor.size() > 1) {
    return UnimplementedError("LoRA on matrices that tensor ranks have between them is not built");
  }
  if (model.lora) DS_RETURN_IF_ERROR(models::AddLora(*model.blocks, &*model.lora));
  if (!job.freeze.empty()) DS_RETURN_IF_ERROR(models::FreezeParameters(*model.whole, job.freeze));
  if (part) FreezeAlike(*model.whole, *model.blocks);
  if (!config.folder.empty()) {
    DS_ASSIGN_OR_RETURN(model.weights, models::WeightReader::Open(config.folder));
  }
  if (model.weights != nullptr) {
    DS_ASSIGN_OR_RETURN(model.unused, model.weights->Check(*model.whole));
  }
  if (job.lora_adapter.empty()) return model;
  if (model.weights == nullptr) {
    return FailedPreconditionError("--lora_adapter " + job.lora_adapter +
                                   ": --model has no weights that it could belong to");
  }
  DS_ASSIGN_OR_RETURN(model.adapter, models::AdapterReader::Open(job.lora_adapter));
  DS_RETURN_IF_ERROR(model.adapter->Check(*model.blocks));
  return model;
}

StatusOr<std::unique_ptr<models::AdapterWriter>> ModelExport::CreateAdapterWriter(
    comm::Communicator& world) const {
  return CreateOnFirst<models::AdapterWriter>(world, [&] {
    return models::AdapterWriter::Create(
        job_.save_hf_dir, *model_.blocks,
        models::MakeAdapterConfig(*model_.lora, job_.model, config_.decoder.weights_are_in_out));
  });
}

StatusOr<std::unique_ptr<models::ModelWriter>> ModelExport::CreateModelWriter(
    comm::Communicator& world) const {
  return CreateOnFirst<models::ModelWriter>(
      world, [&] { return models::ModelWriter::Create(job_.save_hf_dir, config_, *model_.whole); });
}

Status ModelExport::Try(comm::Communicator& world) const {
  return writes_adapters() ? CreateAdapterWriter(world).status()
                           : CreateModelWriter(world).status();
}

Status ModelExport::Write(Engine& engine) const {
  return writes_adapters() ? WriteAdapters(engine) : WriteWhole(engine);
}

Status ModelExport::WriteAdapters(Engine& engine) const {
  DS_ASSIGN_OR_RETURN(const auto writer, CreateAdapterWriter(engine.world()));
  DS_RETURN_IF_ERROR(engine.ExportParameters([&](const std::string& name, const at::Tensor& value) {
    return models::IsLoraParameter(name) ? writer->Write(name, value) : OkStatus();
  }));
  return comm::AgreeOnStatus(writer == nullptr ? OkStatus() : writer->Finish(), engine.world());
}

Status ModelExport::WriteWhole(Engine& engine) const {
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
    return writer->Write(name, merger.Merge(name, value));
  }));
  return comm::AgreeOnStatus(writer == nullptr ? OkStatus() : writer->Finish(), engine.world());
}

}  // namespace ds::rank
