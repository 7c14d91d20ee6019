#include "runtime/models/weights/weights.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>

#include "runtime/base/files.h"
#include "runtime/models/weights/same_values.h"
#include "runtime/plan/model/lora_spec.h"

namespace ds::models {

namespace fs = std::filesystem;
using checkpoint::SafetensorsDeclaration;
using checkpoint::SafetensorsFile;
using checkpoint::SafetensorsWriter;

StatusOr<std::unique_ptr<WeightReader>> WeightReader::Open(const std::filesystem::path& folder) {
  DS_ASSIGN_OR_RETURN(auto files, WeightFiles::Open(folder));
  if (!files) return std::unique_ptr<WeightReader>();
  std::unique_ptr<WeightReader> reader(new WeightReader(*std::move(files)));
  for (const std::filesystem::path& path : reader->files_.paths()) {
    DS_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
    reader->opened_.emplace(path, std::make_unique<SafetensorsFile>(std::move(file)));
  }
  return reader;
}

StatusOr<std::vector<std::string>> WeightReader::Check(const BlockList& model) const {
  std::set<std::string> used;
  for (const auto& block : model.blocks()) {
    for (const auto& item : block->named_parameters()) {
      if (IsLoraParameter(item.key()) || IsQuantizedParameter(item.key())) continue;
      const std::string name = block->FullName(item.key());
      DS_RETURN_IF_ERROR(
          files_.Check(name, block->DescribePlacement(item.key(), item.value()).global_shape));
      used.insert(files_.FindStoredName(name));
    }
  }
  return files_.ListOthers(used);
}

Status WeightReader::CheckTiedHead(const DecoderSpec& spec,
                                   std::vector<std::string>* unused) const {
  const std::string head = std::string(spec.names.head) + ".weight";
  const auto stored = std::find(unused->begin(), unused->end(), head);
  if (!spec.tied_head || stored == unused->end()) return OkStatus();
  const std::string base = spec.names.base;
  const std::string table = (base.empty() ? "" : base + ".") + spec.names.tokens + ".weight";
  const std::int64_t all = spec.vocabulary * spec.width;
  DS_RETURN_IF_ERROR(files_.Check(head, std::array{spec.vocabulary, spec.width}));
  const auto reader_of = [this](const std::string& name) -> SliceReader {
    return [&](std::int64_t first, const at::Tensor& values) { return Read(name, first, values); };
  };
  DS_ASSIGN_OR_RETURN(const bool same, HoldSameValues(all, reader_of(head), reader_of(table)));
  if (!same) {
    return InvalidArgumentError(files_.paths().front().parent_path().string() +
                                ": config.json ties the head to the token table, and " + head +
                                " has other values; to train both, as transformers does then, set "
                                "\"tie_word_embeddings\" to false in config.json");
  }
  unused->erase(stored);
  return OkStatus();
}

Status WeightReader::Read(const std::string& name, std::int64_t first,
                          const at::Tensor& values) const {
  const std::string stored_name = files_.FindStoredName(name);
  DS_ASSIGN_OR_RETURN(const std::filesystem::path* path, files_.FindFile(stored_name));
  return opened_.at(*path)->Read(stored_name, first, values);
}

namespace {

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
  DS_RETURN_IF_ERROR(writer->CheckFreeSpace());
  return writer;
}

Status ModelWriter::CheckFreeSpace() const {
  std::error_code error;
  const fs::space_info free_space = fs::space(folder_, error);
  if (error || free_space.available >= total_bytes_)
    return OkStatus();  // if unknown, writing reports it
  return ResourceExhaustedError(
      folder_.string() + ": the model takes " + std::to_string(total_bytes_) + " bytes and " +
      std::to_string(free_space.available) + " are free: free some space");
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
