#pragma once

// WeightReader, ModelWriter: the weights of a Hugging Face model folder, under Hugging Face names:
// model.safetensors, or shards with model.safetensors.index.json.
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
  // Returns null if the folder has no weights; training then starts from random ones. Fails under
  // the same conditions as WeightFiles::Open.
  static StatusOr<std::unique_ptr<WeightReader>> Open(const std::filesystem::path& folder);

  // Fails if a parameter of `model` (or the global one that it is a part of) is missing or has
  // another shape. Reads headers only, so that a wrong folder is rejected before anything is
  // allocated. Returns the names of stored tensors that the model does not use. Ignores adapters.
  StatusOr<std::vector<std::string>> Check(const BlockList& model) const;

  // Removes the stored matrix of a tied head, a copy of the token table, from Check's result
  // `unused`. Fails if its values differ from the table's: transformers 5 does not tie the head
  // then.
  Status CheckTiedHead(const DecoderSpec& spec, std::vector<std::string>* unused) const;

  // Fills `values`, contiguous, with elements [first, first + values.numel()) of the parameter with
  // this full name. Reads no other elements.
  Status Read(const std::string& name, std::int64_t first, const at::Tensor& values) const;

 private:
  explicit WeightReader(WeightFiles files) : files_(std::move(files)) {}

  WeightFiles files_;
  std::map<std::filesystem::path, std::unique_ptr<checkpoint::SafetensorsFile>> opened_;
};

// Writes a folder that transformers can load: config.json and model.safetensors, split into shards
// with an index above `shard_bytes`. Also copies the tokenizer and generation files of the model's
// source folder. Tensors are written one at a time, in any order, so that at most one is in memory.
// They are unsharded, even if `model` is a part. No file gets its final name before Finish.
class ModelWriter {
 public:
  static constexpr std::uint64_t kShardBytes = 5'000'000'000;

  // Creates `folder`. Names, shapes and dtypes of the parameters are the model's. Fails if the
  // folder is not writable or has too little space for the model. A model with a residual MLP is
  // refused.
  static StatusOr<std::unique_ptr<ModelWriter>> Create(const std::filesystem::path& folder,
                                                       const ModelConfig& config,
                                                       const BlockList& model,
                                                       std::uint64_t shard_bytes = kShardBytes);

  Status Write(const std::string& name, const at::Tensor& tensor);

  // Fails if a parameter was never written.
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
  Status CheckFreeSpace() const;
  Status CopyCompanions() const;

  std::filesystem::path folder_;
  std::filesystem::path source_;  // the model's source folder; empty for a preset
  nlohmann::ordered_json config_;
  std::vector<Shard> shards_;
  std::map<std::string, std::size_t> shard_of_;  // by tensor name
  std::uint64_t total_bytes_ = 0;
};

}  // namespace ds::models
