#pragma once

// AdapterReader, AdapterWriter: LoRA adapters as PEFT saves them. The folder has
// adapter_config.json and adapter_model.safetensors, whose tensor names are the parameters' names
// with the prefix "base_model.model.". It may also hold full parameters of the model itself.

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

// Parameters that the folder holds in full: maps full names to names in the file.
using FullParameterNames = std::map<std::string, std::string>;

class AdapterReader {
 public:
  static StatusOr<std::unique_ptr<AdapterReader>> Open(const std::filesystem::path& folder);

  // Returns OK if the file holds every adapter of the model with its shape, and nothing else, and
  // if `copies` (LoraSpec's) have the same values as the originals. Reads headers and these values
  // only.
  Status Check(const BlockList& model, const FullParameterNames& copies = {}) const;

  // Returns true for an adapter's parameter and for a parameter that the folder holds in full.
  bool Has(const std::string& name) const;

  // Fills `values` as WeightReader::Read does. Requires Has(name).
  Status Read(const std::string& name, std::int64_t first, const at::Tensor& values) const;

 private:
  explicit AdapterReader(checkpoint::SafetensorsFile file) : file_(std::move(file)) {}
  Status CheckCopy(const std::string& stored, const std::string& copy) const;

  checkpoint::SafetensorsFile file_;
  FullParameterNames full_;
};

// Writes a PEFT folder. No file gets its final name before Finish.
class AdapterWriter {
 public:
  // Creates `folder` for the adapters of `model`. `config` comes from MakeAdapterConfig, `full`
  // and `copies` from the LoraSpec.
  static StatusOr<std::unique_ptr<AdapterWriter>> Create(const std::filesystem::path& folder,
                                                         const BlockList& model,
                                                         nlohmann::ordered_json config,
                                                         FullParameterNames full = {},
                                                         FullParameterNames copies = {});

  Status Write(const std::string& name, const at::Tensor& tensor);
  // Fails if an adapter was never written.
  Status Finish();

 private:
  AdapterWriter(std::filesystem::path folder, nlohmann::ordered_json config,
                FullParameterNames full, FullParameterNames copies)
      : folder_(std::move(folder)),
        config_(std::move(config)),
        full_(std::move(full)),
        copies_(std::move(copies)) {}
  std::filesystem::path folder_;
  nlohmann::ordered_json config_;
  FullParameterNames full_;
  FullParameterNames copies_;
  std::unique_ptr<checkpoint::SafetensorsWriter> writer_;
};

}  // namespace ds::models
