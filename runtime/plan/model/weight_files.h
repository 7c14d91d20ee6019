#pragma once

// WeightFiles: maps the tensors of a Hugging Face model folder to their safetensors files, from the
// headers alone. The files are model.safetensors, or shards with model.safetensors.index.json.
//
// Free of LibTorch, so that dsrun refuses the folders that ranks would refuse. Threads: const
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
  // Returns nullopt when the folder has no weights (training starts from random ones). Refuses, by
  // their file names, weights in an unsupported format and incomplete weights.
  static StatusOr<std::optional<WeightFiles>> Open(const std::filesystem::path& folder);
  // Returns the file that Open would read first: model.safetensors or the index; "" when the folder
  // has no weights. Refuses the same file names as Open.
  static StatusOr<std::filesystem::path> FindFirst(const std::filesystem::path& folder);

  const std::vector<std::filesystem::path>& paths() const { return paths_; }

  // Returns the name under which the folder stores `name`. A base model may be saved without the
  // first component: "transformer.wte.weight" -> "wte.weight". Returns `name` if neither is stored.
  std::string FindStoredName(const std::string& name) const;
  bool Has(const std::string& stored_name) const { return tensors_.contains(stored_name); }
  // Returns the path of the file with this stored tensor.
  StatusOr<const std::filesystem::path*> FindFile(const std::string& stored_name) const;

  // OK if a floating-point parameter with this full name and shape can be read.
  Status Check(const std::string& name, std::span<const std::int64_t> shape) const;
  // Lists the stored tensors other than `stored_names`, without the constant buffers that older
  // versions of transformers stored.
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
