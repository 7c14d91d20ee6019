#pragma once

// Weights of a Hugging Face model folder: model.safetensors, or shards with
// model.safetensors.index.json, under Hugging Face names.
//
// Threads: a reader or writer belongs to one thread.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/models/block.h"
#include "runtime/models/weights/model_config.h"
#include "runtime/plan/model/weight_files.h"

namespace ds::models {

class WeightReader {
 public:
  // Null when the folder has no weights (training starts from random ones). Refuses as
  // WeightFiles::Open does.
  static StatusOr<std::unique_ptr<WeightReader>> Open(const std::filesystem::path& folder);

  // Refuses when a parameter of `model` (or the one it is a part of) is missing or has another
  // shape; reads headers only, so that a wrong folder is refused before anything is allocated.
  // Returns the names of stored tensors that the model does not use. Adapters are not looked for.
  StatusOr<std::vector<std::string>> Check(const BlockList& model) const;

  // Takes the stored matrix of a tied head, which is the token table once more, out of Check's
  // `unused`. One of other values is refused: transformers 5 does not tie it then.
  Status CheckTiedHead(const DecoderSpec& spec, std::vector<std::string>* unused) const;

  // Fills `values`, contiguous, with the elements [first, first + values.numel()) of the parameter
  // with this full name, and reads no others.
  Status Read(const std::string& name, std::int64_t first, const at::Tensor& values) const;

 private:
  explicit WeightReader(WeightFiles files) : files_(std::move(files)) {}

  WeightFiles files_;
  std::map<std::filesystem::path, std::unique_ptr<checkpoint::SafetensorsFile>> opened_;
};

// Writes a folder that transformers loads: config.json and model.safetensors, split into shards
// with an index above `shard_bytes`, and copies of what the folder that the model comes from has of
// a tokenizer and of generation. Tensors come one at a time, in any order, so that no more than one
// is in memory; they are whole, whatever parts `model` has. Nothing appears under a final name
// before Finish.
class ModelWriter {
 public:
  static constexpr std::uint64_t kShardBytes = 5'000'000'000;

  // Creates `folder`. The parameters' names, shapes and dtypes are the model's. Fails where nothing
  // can be written or there is no room for the model; a model with a residual MLP is refused.
  static StatusOr<std::unique_ptr<ModelWriter>> Create(const std::filesystem::path& folder,
                                                       const ModelConfig& config,
                                                       const BlockList& model,
                                                       std::uint64_t shard_bytes = kShardBytes);

  Status Write(const std::string& name, const at::Tensor& tensor);

  // Refuses when a parameter was never written.
  Status Finish();

 private:
  struct Shard {
    std::string file_name;
    std::unique_ptr<checkpoint::SafetensorsWriter> writer;
  };
  ModelWriter(std::filesystem::path folder, std::filesystem::path source,
              nlohmann::ordered_json config)
      : folder_(std::move(folder)), source_(std::move(source)), config_(std::move(config)) {}
  Status CreateShards(const BlockList& model, std::uint64_t shard_bytes);
  Status CheckRoom() const;
  Status CopyCompanions() const;

  std::filesystem::path folder_;
  std::filesystem::path source_;  // where the model comes from; empty for a preset
  nlohmann::ordered_json config_;
  std::vector<Shard> shards_;
  std::map<std::string, std::size_t> shard_of_;  // by tensor name
  std::uint64_t total_bytes_ = 0;
};

}  // namespace ds::models
