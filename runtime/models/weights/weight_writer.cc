#include <algorithm>
#include <cstdio>

#include "runtime/base/files.h"
#include "runtime/models/weights/weights.h"
#include "runtime/plan/model/lora_spec.h"

namespace ds::models {
namespace fs = std::filesystem;
namespace {

using checkpoint::SafetensorsDeclaration;
using checkpoint::SafetensorsWriter;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

// Files that a model folder may have in addition to its config and weights: generation settings and
// the tokenizer in its several forms.
constexpr const char* kCompanions[] = {"generation_config.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "tokenizer.model",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "vocab.txt",
                                       "spiece.model",
                                       "sentencepiece.bpe.model",
                                       "chat_template.jinja",
                                       "chat_template.json"};
constexpr std::uint64_t kMostCompanionBytes = std::uint64_t{1} << 30;

// Returns the model's tensors in order, split where a shard would exceed `shard_bytes`.
std::vector<std::vector<SafetensorsDeclaration>> PlanShards(const BlockList& model,
                                                            std::uint64_t shard_bytes) {
  std::vector<std::vector<SafetensorsDeclaration>> shards(1);
  std::uint64_t bytes = 0;
  for (const auto& block : model.blocks()) {
    for (const auto& item : block->named_parameters()) {
      if (IsLoraParameter(item.key()) || IsQuantizedParameter(item.key())) continue;
      SafetensorsDeclaration declared{
          block->FullName(item.key()), item.value().scalar_type(),
          block->DescribePlacement(item.key(), item.value()).global_shape};
      if (bytes > 0 && bytes + declared.Bytes() > shard_bytes) {
        shards.emplace_back();
        bytes = 0;
      }
      bytes += declared.Bytes();
      shards.back().push_back(std::move(declared));
    }
  }
  return shards;
}

std::string ShardName(std::size_t shard, std::size_t count) {
  if (count == 1) return kSingleFile;
  char name[64];
  std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", shard + 1, count);
  return name;
}

// Returns the config.json to write: as read, plus the keys from which transformers finds class and
// dtype.
nlohmann::ordered_json MakeConfigToWrite(const ModelConfig& config, const BlockList& model) {
  nlohmann::ordered_json json = config.json;
  if (!json.contains("architectures")) {
    json["architectures"] = {config.decoder.architecture};
  }
  json.erase("torch_dtype");
  switch (model.block(0).parameters().at(0).scalar_type()) {
    case at::kBFloat16:
      json["dtype"] = "bfloat16";
      break;
    case at::kHalf:
      json["dtype"] = "float16";
      break;
    default:
      json["dtype"] = "float32";
  }
  return json;
}

}  // namespace

StatusOr<std::unique_ptr<ModelWriter>> ModelWriter::Create(const fs::path& folder,
                                                           const ModelConfig& config,
                                                           const BlockList& model,
                                                           std::uint64_t shard_bytes) {
  if (config.decoder.shared_expert_mix == SharedExpertMix::kWeighted) {
    return UnimplementedError(folder.string() +
                              ": transformers has no model with an MLP next to its experts "
                              "(moe.use_residual): keep the model in checkpoints");
  }
  DS_RETURN_IF_ERROR(MakeDirectories(folder));
  std::unique_ptr<ModelWriter> writer(
      new ModelWriter(folder, config.folder, MakeConfigToWrite(config, model)));
  DS_RETURN_IF_ERROR(writer->CreateShards(model, shard_bytes));
  DS_RETURN_IF_ERROR(writer->CheckRoom());
  return writer;
}

Status ModelWriter::CheckRoom() const {
  std::error_code error;
  const fs::space_info room = fs::space(folder_, error);
  if (error || room.available >= total_bytes_) return OkStatus();  // if unknown, writing reports it
  return ResourceExhaustedError(folder_.string() + ": the model takes " +
                                std::to_string(total_bytes_) + " bytes and " +
                                std::to_string(room.available) + " are free: make room");
}

Status ModelWriter::CreateShards(const BlockList& model, std::uint64_t shard_bytes) {
  const auto plan = PlanShards(model, shard_bytes);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    Shard shard{ShardName(i, plan.size()), nullptr};
    DS_ASSIGN_OR_RETURN(shard.writer,
                        SafetensorsWriter::Create(folder_ / shard.file_name, plan[i]));
    shards_.push_back(std::move(shard));
    for (const SafetensorsDeclaration& declared : plan[i]) {
      shard_of_[declared.name] = i;
      total_bytes_ += declared.Bytes();
    }
  }
  return OkStatus();
}

Status ModelWriter::Write(const std::string& name, const at::Tensor& tensor) {
  const auto found = shard_of_.find(name);
  if (found == shard_of_.end()) {
    return InvalidArgumentError(folder_.string() + ": the model has no parameter '" + name + "'");
  }
  return shards_[found->second].writer->Write(name, tensor);
}

Status ModelWriter::CopyCompanions() const {
  std::error_code error;
  if (source_.empty() || fs::equivalent(source_, folder_, error)) return OkStatus();
  for (const char* name : kCompanions) {
    if (!fs::is_regular_file(source_ / name, error)) continue;
    const auto content = ReadFile(source_ / name, kMostCompanionBytes);
    // A Git LFS pointer was not needed for training, so it must not make the export fail.
    if (content.status().code() == StatusCode::kInvalidArgument) continue;
    if (!content.ok()) return content.status();
    DS_RETURN_IF_ERROR(WriteFileAtomically(folder_ / name, *content));
  }
  return OkStatus();
}

Status ModelWriter::Finish() {
  for (Shard& shard : shards_) DS_RETURN_IF_ERROR(shard.writer->Commit());
  DS_RETURN_IF_ERROR(CopyCompanions());
  std::error_code ignored;
  if (shards_.size() > 1) {
    nlohmann::ordered_json index = {{"metadata", {{"total_size", total_bytes_}}}};
    for (const auto& [name, shard] : shard_of_) {
      index["weight_map"][name] = shards_[shard].file_name;
    }
    DS_RETURN_IF_ERROR(WriteFileAtomically(folder_ / kIndexFile, index.dump(2) + "\n"));
    // Remove a single file left by an earlier save: it would be read instead of the shards.
    fs::remove(folder_ / kSingleFile, ignored);
  } else {
    fs::remove(folder_ / kIndexFile, ignored);
  }
  return WriteFileAtomically(folder_ / "config.json", config_.dump(2) + "\n");
}

}  // namespace ds::models
