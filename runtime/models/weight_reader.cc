#include <set>

#include "runtime/base/files.h"
#include "runtime/models/spec/lora_spec.h"
#include "runtime/models/weights.h"

namespace ds::models {
namespace fs = std::filesystem;
namespace {

using checkpoint::SafetensorsFile;

constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{256} << 20;

// Constants that older versions of transformers stored beside the weights.
bool IsStoredBuffer(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

// The shard file of every tensor.
StatusOr<std::map<std::string, std::string>> ReadIndex(const fs::path& index) {
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(index, kMaxIndexBytes));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return InvalidArgumentError(index.string() + ": no JSON object with a weight_map");
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    // A plain file name: an index must not reach outside its folder.
    if (!file.is_string() ||
        fs::path(file.get<std::string>()).filename() != file.get<std::string>()) {
      return InvalidArgumentError(index.string() + ": weight_map['" + tensor +
                                  "'] is not the name of a file of this folder");
    }
    files[tensor] = file.get<std::string>();
  }
  return files;
}

}  // namespace

StatusOr<std::unique_ptr<WeightReader>> WeightReader::Open(const fs::path& folder) {
  if (folder.empty()) return std::unique_ptr<WeightReader>();
  std::unique_ptr<WeightReader> reader(new WeightReader);
  std::error_code error;
  const fs::path single = folder / "model.safetensors";
  const fs::path index = folder / "model.safetensors.index.json";
  if (fs::exists(single, error)) {
    reader->where_ = single.string();
    DS_RETURN_IF_ERROR(reader->AddFile(single));
    return reader;
  }
  if (fs::exists(index, error)) {
    reader->where_ = index.string();
    DS_RETURN_IF_ERROR(reader->AddShards(index));
    return reader;
  }
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!fs::exists(folder / name, error)) continue;
    return UnimplementedError(folder.string() + ": its weights are in " + name +
                              ", a pickle, which is never executed here; save the model as "
                              "safetensors (transformers: save_pretrained)");
  }
  return std::unique_ptr<WeightReader>();
}

Status WeightReader::AddFile(const fs::path& path) {
  DS_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  files_.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
  for (const auto& [name, entry] : files_.back()->entries()) {
    if (!tensors_.emplace(name, files_.back().get()).second) {
      return InvalidArgumentError(path.string() + ": tensor '" + name + "' is in two files");
    }
  }
  return OkStatus();
}

Status WeightReader::AddShards(const fs::path& index) {
  DS_ASSIGN_OR_RETURN(const auto file_of, ReadIndex(index));
  std::set<std::string> names;
  for (const auto& [tensor, file] : file_of) names.insert(file);
  for (const std::string& name : names) {
    std::error_code error;
    if (!fs::exists(index.parent_path() / name, error)) {
      return NotFoundError(index.string() + " names the shard " + name +
                           ", which is not in its folder: the download is not complete");
    }
    DS_RETURN_IF_ERROR(AddFile(index.parent_path() / name));
  }
  for (const auto& [tensor, file] : file_of) {
    const auto found = tensors_.find(tensor);
    if (found == tensors_.end() || found->second->path().filename() != file) {
      return InvalidArgumentError(index.string() + ": tensor '" + tensor + "' is not in " + file);
    }
  }
  return OkStatus();
}

std::string WeightReader::FindStoredName(const std::string& name) const {
  if (tensors_.contains(name)) return name;
  for (const std::string_view base : {"transformer.", "model."}) {
    if (!name.starts_with(base)) continue;
    std::string shorter = name.substr(base.size());
    if (tensors_.contains(shorter)) return shorter;
  }
  return name;
}

StatusOr<const SafetensorsFile*> WeightReader::FindFile(const std::string& stored_name) const {
  const auto found = tensors_.find(stored_name);
  if (found != tensors_.end()) return found->second;
  return NotFoundError(where_ + ": tensor '" + stored_name +
                       "' is missing, which the model's config.json asks for");
}

StatusOr<std::vector<std::string>> WeightReader::Check(const BlockList& model) const {
  std::set<std::string> used;
  for (const auto& block : model.blocks()) {
    for (const auto& item : block->named_parameters()) {
      if (IsLoraParameter(item.key()) || IsQuantizedParameter(item.key())) continue;
      const std::string name = FindStoredName(block->FullName(item.key()));
      DS_ASSIGN_OR_RETURN(const SafetensorsFile* file, FindFile(name));
      DS_RETURN_IF_ERROR(
          file->CheckReadable(name, block->DescribePlacement(item.key(), item.value()).global_shape,
                              item.value().scalar_type()));
      used.insert(name);
    }
  }
  std::vector<std::string> unused;
  for (const auto& [name, file] : tensors_) {
    if (!used.contains(name) && !IsStoredBuffer(name)) unused.push_back(name);
  }
  return unused;
}

Status WeightReader::Read(const std::string& name, std::int64_t first,
                          const at::Tensor& values) const {
  const std::string stored_name = FindStoredName(name);
  DS_ASSIGN_OR_RETURN(const SafetensorsFile* file, FindFile(stored_name));
  return file->Read(stored_name, first, values);
}

}  // namespace ds::models
