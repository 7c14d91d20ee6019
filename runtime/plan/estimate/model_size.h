#pragma once

// ModelSize: the number of parameters of a model, counted without loading it.
//
// The source is a config.json of a known family, counted exactly as transformers builds it, or else
// the headers of the model's safetensors files. "Largest layer" is DeepSpeed's: the most parameters
// that one module owns directly, without its submodules.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/expert_gate_config.h"
#include "runtime/plan/pipeline/partition.h"

namespace ds::plan {

struct ModelSize {
  std::int64_t params = 0;
  std::int64_t largest_layer_params = 0;
};

// `model` is a folder with a config.json or safetensors files, or the path of a config.json.
StatusOr<ModelSize> ReadModelSize(const std::filesystem::path& model);

// Sums up the headers of the safetensors files in `folder`; with `tied_head` the head's matrix,
// which is tied to the embedding, counts once. NotFound when there is no such file.
StatusOr<ModelSize> SizeOfWeights(const std::filesystem::path& folder, bool tied_head);

// True if the family of this config.json is known.
bool IsKnownFamily(const nlohmann::ordered_json& config);

// Derives the size from a config.json of a known family. The error names the key.
StatusOr<ModelSize> SizeOfConfig(const nlohmann::ordered_json& config);

// Lists the blocks of a model of a known family, as modified by the `moe` section of a ds_config.
// Their work is for samples of `seq_len` tokens. `model` is as for ReadModelSize.
StatusOr<std::vector<pipeline::WeighedBlock>> ReadModelBlocks(const std::filesystem::path& model,
                                                              const config::MoeConfig& moe,
                                                              std::int64_t seq_len);

}  // namespace ds::plan
