#pragma once

// Adapters as PEFT saves them: a folder with adapter_config.json and adapter_model.safetensors,
// whose tensors have the parameters' names behind "base_model.model.".

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/models/block.h"

namespace ds::models {

class AdapterReader {
 public:
  static StatusOr<std::unique_ptr<AdapterReader>> Open(const std::filesystem::path& folder);

  // OK when every adapter of the model is there with its shape, and nothing else. Reads headers.
  Status Check(const BlockList& model) const;

  // Fills `values` as WeightReader::Read does; `name` is an adapter's.
  Status Read(const std::string& name, std::int64_t first, const at::Tensor& values) const;

 private:
  explicit AdapterReader(checkpoint::SafetensorsFile file) : file_(std::move(file)) {}
  checkpoint::SafetensorsFile file_;
};

// Nothing appears under a final name before Finish.
class AdapterWriter {
 public:
  // Creates `folder` for the adapters of `model`; `config` is MakeAdapterConfig's.
  static StatusOr<std::unique_ptr<AdapterWriter>> Create(const std::filesystem::path& folder,
                                                         const BlockList& model,
                                                         nlohmann::ordered_json config);

  Status Write(const std::string& name, const at::Tensor& tensor);
  // Refuses when an adapter was never written.
  Status Finish();

 private:
  AdapterWriter(std::filesystem::path folder, nlohmann::ordered_json config)
      : folder_(std::move(folder)), config_(std::move(config)) {}
  std::filesystem::path folder_;
  nlohmann::ordered_json config_;
  std::unique_ptr<checkpoint::SafetensorsWriter> writer_;
};

}  // namespace ds::models
