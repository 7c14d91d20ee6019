#pragma once

// LoadModel: returns a model with its weights, ready to run.

#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/models/block.h"
#include "runtime/models/weights/model_config.h"

namespace ds::inference {

// Parses "float32", "bfloat16", "float16" or "auto". "auto" is the dtype of the weights according
// to `config`, or float32 if it names none.
StatusOr<c10::ScalarType> FindDtype(const std::string& name, const models::ModelConfig& config);

struct LoadedModel {
  std::shared_ptr<BlockList> blocks;  // in evaluation mode
  bool has_weights = false;           // false: the weights are random
  std::vector<std::string> unused;    // tensors of the folder that belong to no block
};

// Reads the weights of config.folder, or draws them with `seed` if there are none. Rejects a folder
// that does not match the model before it allocates memory. Adds the adapters of the PEFT folder
// `adapter`, if given, without merging them. `options` holds dtype and device.
StatusOr<LoadedModel> LoadModel(const models::ModelConfig& config, c10::TensorOptions options,
                                std::uint64_t seed, const std::filesystem::path& adapter = {});

}  // namespace ds::inference
