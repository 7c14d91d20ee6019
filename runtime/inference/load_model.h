#pragma once

// LoadModel: a model with its weights, ready to run.

#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/models/block.h"
#include "runtime/models/model_config.h"

namespace ds::inference {

// "float32", "bfloat16" or "float16"; "auto" is what `config` says its weights are, else float32.
StatusOr<c10::ScalarType> FindDtype(const std::string& name, const models::ModelConfig& config);

struct LoadedModel {
  std::shared_ptr<BlockList> blocks;  // in evaluation mode
  bool has_weights = false;           // else they are drawn
  std::vector<std::string> unused;    // tensors of the folder that no block has
};

// Reads the weights of config.folder; where there are none, draws them by `seed`. Refuses a folder
// that does not suit the model before anything is allocated. Puts the adapters of a PEFT folder
// beside the weights, if there is one, unmerged. `options` say dtype and device.
StatusOr<LoadedModel> LoadModel(const models::ModelConfig& config, c10::TensorOptions options,
                                std::uint64_t seed, const std::filesystem::path& adapter = {});

}  // namespace ds::inference
