#include "runtime/plan/model/weight_files.h"

#include <fcntl.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "runtime/base/files.h"
#include "runtime/base/json_fault.h"
#include "runtime/base/unique_fd.h"

namespace ds::models {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{256} << 20;
constexpr std::string_view kFloatingPoint[] = {"F64", "F32", "F16", "BF16"};
constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

// Constant buffers that older versions of transformers stored next to the weights.
bool IsStoredBuffer(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

// True for the names of torch.save pickles with a model's weights. Data files and training states
// have the same extensions.
bool IsPickle(std::string_view name) {
  const bool is_of_model = name.starts_with("pytorch_model") || name.starts_with("consolidated") ||
                           name.starts_with("model");
  const bool ends = name.ends_with(".bin") || name.ends_with(".bin.index.json") ||
                    name.ends_with(".pt") || name.ends_with(".pth");
  return is_of_model && ends;
}

// Fails for weights in formats that are not read: a folder with weights should not silently start
// from random ones.
Status RefuseUnread(const fs::path& folder, const std::string& name) {
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char letter) { return std::tolower(letter); });
  if (IsPickle(lower)) {
    return UnimplementedError(folder.string() + ": its weights are in " + name +
                              ", a pickle, which is never executed here; save the model as "
                              "safetensors (transformers: save_pretrained)");
  }
  for (const std::string_view part : {".safetensors", ".h5", ".msgpack", ".gguf", ".ckpt"}) {
    if (lower.find(part) == std::string::npos) continue;
    return InvalidArgumentError(
        folder.string() + " has " + name + ", and neither " + kSingleFile + " nor " + kIndexFile +
        ": complete the download, or save the model by transformers' save_pretrained; random "
        "weights start from a folder with the config.json and the tokenizer alone");
  }
  return OkStatus();
}

// Maps every tensor to its shard file.
StatusOr<std::map<std::string, std::string>> ReadIndex(const fs::path& index) {
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(index, kMaxIndexBytes));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return InvalidArgumentError(index.string() + ": not valid JSON: " + DescribeJsonFault(text));
  }
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return InvalidArgumentError(index.string() + ": no JSON object with a weight_map");
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    // Requires a plain file name: an index must not refer to files outside its folder.
    if (!file.is_string() ||
        fs::path(file.get<std::string>()).filename() != file.get<std::string>()) {
      return InvalidArgumentError(index.string() + ": weight_map['" + tensor +
                                  "'] is not the name of a file of this folder");
    }
    files[tensor] = file.get<std::string>();
  }
  return files;
}

std::string ShapeText(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  }
  return text + "]";
}

}  // namespace

StatusOr<fs::path> WeightFiles::FindFirst(const fs::path& folder) {
  if (folder.empty()) return fs::path();
  std::error_code error;
  std::set<std::string> names;
  for (fs::directory_iterator entry(folder, error); entry != fs::directory_iterator();
       entry.increment(error)) {
    names.insert(entry->path().filename().string());
  }
  if (error) return ErrnoError(error.value(), folder.string());
  for (const char* name : {kSingleFile, kIndexFile}) {
    if (names.contains(name)) return folder / name;
  }
  for (const std::string& name : names) DS_RETURN_IF_ERROR(RefuseUnread(folder, name));
  return fs::path();
}

StatusOr<std::optional<WeightFiles>> WeightFiles::Open(const fs::path& folder) {
  DS_ASSIGN_OR_RETURN(const fs::path first, FindFirst(folder));
  if (first.empty()) return std::optional<WeightFiles>();
  WeightFiles files;
  files.where_ = first.string();
  DS_RETURN_IF_ERROR(first.filename() == kIndexFile ? files.AddShards(first)
                                                    : files.AddFile(first));
  return std::optional(std::move(files));
}

Status WeightFiles::AddFile(const fs::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoError(errno, path.string());
  auto layout = checkpoint::ReadSafetensorsLayout(fd.get());
  if (!layout.ok()) return layout.status().WithContext(path.string());
  paths_.push_back(path);
  for (auto& [name, tensor] : *layout) {
    if (!tensors_.emplace(name, Stored{path, std::move(tensor)}).second) {
      return InvalidArgumentError(path.string() + ": tensor '" + name + "' is in two files");
    }
  }
  return OkStatus();
}

Status WeightFiles::AddShards(const fs::path& index) {
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
    if (found == tensors_.end() || found->second.path.filename() != file) {
      return InvalidArgumentError(index.string() + ": tensor '" + tensor + "' is not in " + file);
    }
  }
  return OkStatus();
}

std::string WeightFiles::FindStoredName(const std::string& name) const {
  if (tensors_.contains(name)) return name;
  for (const std::string_view base : {"transformer.", "model."}) {
    if (!name.starts_with(base)) continue;
    std::string shorter = name.substr(base.size());
    if (tensors_.contains(shorter)) return shorter;
  }
  return name;
}

StatusOr<const WeightFiles::Stored*> WeightFiles::Find(const std::string& stored_name) const {
  const auto found = tensors_.find(stored_name);
  if (found != tensors_.end()) return &found->second;
  return NotFoundError(where_ + ": tensor '" + stored_name +
                       "' is missing, which the model's config.json asks for");
}

StatusOr<const fs::path*> WeightFiles::FindFile(const std::string& stored_name) const {
  DS_ASSIGN_OR_RETURN(const Stored* stored, Find(stored_name));
  return &stored->path;
}

Status WeightFiles::Check(const std::string& name, std::span<const std::int64_t> shape) const {
  const std::string stored_name = FindStoredName(name);
  DS_ASSIGN_OR_RETURN(const Stored* stored, Find(stored_name));
  const checkpoint::SafetensorsTensor& tensor = stored->tensor;
  const std::string shown = stored->path.string() + ": tensor '" + stored_name + "'";
  if (std::find(std::begin(kFloatingPoint), std::end(kFloatingPoint), tensor.dtype) ==
      std::end(kFloatingPoint)) {
    return UnimplementedError(shown + " has dtype " + tensor.dtype +
                              ", which is not supported; weights are F64, F32, F16 or BF16");
  }
  if (std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end())) {
    return OkStatus();
  }
  return InvalidArgumentError(shown + " has shape " + ShapeText(tensor.shape) + ", expected " +
                              ShapeText(shape));
}

std::vector<std::string> WeightFiles::ListOthers(const std::set<std::string>& stored_names) const {
  std::vector<std::string> others;
  for (const auto& [name, stored] : tensors_) {
    if (!stored_names.contains(name) && !IsStoredBuffer(name)) others.push_back(name);
  }
  return others;
}

}  // namespace ds::models
