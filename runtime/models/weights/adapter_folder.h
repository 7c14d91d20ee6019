#pragma once

// Adapters as PEFT saves them: a folder with adapter_config.json and adapter_model.safetensors,
// whose tensors have the parameters' names behind "base_model.model.". Some parameters of the model
// itself may be there whole.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/models/block.h"

namespace ds::models {

// Parameters that are there whole: full names, names in the file.
using WholeNames = std::map<std::string, std::string>;

class AdapterReader {
 public:
  static StatusOr<std::unique_ptr<AdapterReader>> Open(const std::filesystem::path& folder);

  // OK when every adapter of the model is there with its shape, and nothing else, and `copies`
  // (LoraSpec's) have the values of what they are copies of. Reads headers, and these.
  Status Check(const BlockList& model, const WholeNames& copies = {}) const;

  // True of an adapter's parameter, and of one that the folder has whole.
  bool Has(const std::string& name) const;

  // Fills `values` as WeightReader::Read does; the folder has `name`.
  Status Read(const std::string& name, std::int64_t first, const at::Tensor& values) const;

 private:
  explicit AdapterReader(checkpoint::SafetensorsFile file) : file_(std::move(file)) {}
  Status CheckCopy(const std::string& stored, const std::string& copy) const;

  checkpoint::SafetensorsFile file_;
  WholeNames whole_;
};

// Nothing appears under a final name before Finish.
class AdapterWriter {
 public:
  // Creates `folder` for the adapters of `model`; `config` is MakeAdapterConfig's, `whole` and
  // `copies` are the spec's.
  static StatusOr<std::unique_ptr<AdapterWriter>> Create(const std::filesystem::path& folder,
                                                         const BlockList& model,
                                                         nlohmann::ordered_json config,
                                                         WholeNames whole = {},
                                                         WholeNames copies = {});

  Status Write(const std::string& name, const at::Tensor& tensor);
  // Refuses when an adapter was never written.
  Status Finish();

 private:
  AdapterWriter(std::filesystem::path folder, nlohmann::ordered_json config, WholeNames whole,
                WholeNames copies)
      : folder_(std::move(folder)),
        config_(std::move(config)),
        whole_(std::move(whole)),
        copies_(std::move(copies)) {}
  std::filesystem::path folder_;
  nlohmann::ordered_json config_;
  WholeNames whole_;
  WholeNames copies_;
  std::unique_ptr<checkpoint::SafetensorsWriter> writer_;
};

}  // namespace ds::models
