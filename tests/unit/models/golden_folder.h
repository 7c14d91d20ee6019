#pragma once

// The contents of the goldens of tests/numerics/goldens, for tests of models.

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/models/block.h"
#include "runtime/models/weights/model_config.h"
#include "runtime/models/weights/weights.h"
#include "tests/places.h"

namespace ds::models {

inline std::filesystem::path GoldenFolder() {
  return std::filesystem::path(DS_SOURCE_DIR) / "tests/numerics/goldens";
}

// FAMILY.json
nlohmann::json ReadGolden(const std::string& family);

// The first `samples` samples of tokens.bin.
Bundle GoldenBatch(const nlohmann::json& golden, std::int64_t samples);

// Gives the block memory and its weights.
void LoadWeights(const WeightReader& reader, Block& block);

// The folder's model with its weights loaded.
std::shared_ptr<BlockList> LoadGoldenModel(const std::string& family,
                                           at::ScalarType dtype = at::kFloat);

// Expects norm and probe (the sum of the elements times cos(i)) of a tensor to be the golden's, in
// shares of the norm.
void ExpectGoldenTensor(const at::Tensor& tensor, const nlohmann::json& golden, double tolerance,
                        const std::string& what);

// The same of the gradients of all parameters; the golden has them by full names, and no others.
void ExpectGoldenGradients(const BlockList& model, const nlohmann::json& gradients,
                           double tolerance);

}  // namespace ds::models
