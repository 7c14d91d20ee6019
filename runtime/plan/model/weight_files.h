#pragma once

// WeightFiles: which tensors a Hugging Face model folder has in which safetensors file, by the
// headers alone: model.safetensors, or shards with model.safetensors.index.json.
//
// Without LibTorch, so that dsrun refuses a folder that ranks would refuse. Threads: const
// functions may be called concurrently.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint_format/safetensors_layout.h"

namespace ds::models {

class WeightFiles {
 public:
  // Nothing when the folder has no weights (training starts from random ones). Refuses a folder
  // whose only weights are in a format that is not read, or are not complete, by their files'
  // names.
  static StatusOr<std::optional<WeightFiles>> Open(const std::filesystem::path& folder);
  // The file that Open would read first: model.safetensors or the index; "" when the folder has no
  // weights. Refuses what Open refuses by names.
  static StatusOr<std::filesystem::path> FindFirst(const std::filesystem::path& folder);

  const std::vector<std::filesystem::path>& paths() const { return paths_; }

  // The name under which the folder has `name`, which a base model was saved without the first
  // part of: "transformer.wte.weight" -> "wte.weight". `name` itself when there is neither.
  std::string FindStoredName(const std::string& name) const;
  bool Has(const std::string& stored_name) const { return tensors_.contains(stored_name); }
  // The path of a stored tensor.
  StatusOr<const std::filesystem::path*> FindFile(const std::string& stored_name) const;

  // OK where a parameter with this full name and shape, of floating-point numbers, can be read.
  Status Check(const std::string& name, std::span<const std::int64_t> shape) const;
  // Stored tensors but for these, and for constants that older versions of transformers stored.
  std::vector<std::string> ListOthers(const std::set<std::string>& stored_names) const;

 private:
  struct Stored {
    std::filesystem::path path;
    checkpoint::SafetensorsTensor tensor;
  };
  Status AddFile(const std::filesystem::path& path);
  Status AddShards(const std::filesystem::path& index);
  StatusOr<const Stored*> Find(const std::string& stored_name) const;

  std::string where_;  // the single file or the index, for messages
  std::vector<std::filesystem::path> paths_;
  std::map<std::string, Stored> tensors_;
};

}  // namespace ds::models
