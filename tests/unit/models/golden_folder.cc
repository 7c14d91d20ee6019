#include "tests/unit/models/golden_folder.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/base/files.h"
#include "runtime/models/decoder/build_model.h"
#include "runtime/models/weights/weights.h"

namespace ds::models {

nlohmann::json ReadGolden(const std::string& family) {
  return nlohmann::json::parse(ReadFile(GoldenFolder() / (family + ".json")).value());
}

Bundle GoldenBatch(const nlohmann::json& golden, std::int64_t samples) {
  std::string bytes = ReadFile(GoldenFolder() / "tokens.bin").value();
  const std::int64_t tokens = golden["seq_len"];
  const at::Tensor all =
      at::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size()) / 2}, at::kShort)
          .to(at::kLong);
  std::vector<at::Tensor> inputs, labels;
  for (std::int64_t i = 0; i < samples; ++i) {
    inputs.push_back(all.narrow(0, i * tokens, tokens));
    labels.push_back(all.narrow(0, i * tokens + 1, tokens));
  }
  return {.batch = {{"tokens", at::stack(inputs)}, {"labels", at::stack(labels)}}};
}

void LoadWeights(const WeightReader& reader, Block& block) {
  AllocateParameters(block);
  for (const auto& item : block.named_parameters()) {
    const Status status = reader.Read(block.FullName(item.key()), 0, item.value());
    DS_CHECK_MSG(status.ok(), status.message());
  }
}

std::shared_ptr<BlockList> LoadGoldenModel(const std::string& family, at::ScalarType dtype) {
  const ModelConfig config = ReadModelConfig((GoldenFolder() / family).string()).value();
  std::shared_ptr<BlockList> model = BuildModel(config, dtype);
  const auto reader = WeightReader::Open(config.folder).value();
  for (const auto& block : model->blocks()) LoadWeights(*reader, *block);
  return model;
}

void ExpectGoldenTensor(const at::Tensor& tensor, const nlohmann::json& golden, double tolerance,
                        const std::string& what) {
  // Gradients that are zero but for rounding, as that of a bias of the keys is, have no relative
  // error.
  constexpr double kLeastNorm = 5e-3;
  const at::Tensor flat = tensor.detach().to(at::kDouble).flatten();
  const double norm = golden["norm"], error = tolerance * std::max(norm, kLeastNorm);
  EXPECT_NEAR(flat.norm().item<double>(), norm, error) << what;
  const at::Tensor waves = at::arange(flat.numel(), at::kDouble).cos();
  EXPECT_NEAR(flat.dot(waves).item<double>(), golden["probe"].get<double>(), error) << what;
}

void ExpectGoldenGradients(const BlockList& model, const nlohmann::json& gradients,
                           double tolerance) {
  std::size_t parameters = 0;
  for (const auto& block : model.blocks()) {
    for (const auto& item : block->named_parameters()) {
      const std::string name = block->FullName(item.key());
      ASSERT_TRUE(gradients.contains(name)) << name;
      ExpectGoldenTensor(item.value().grad(), gradients[name], tolerance, name);
      ++parameters;
    }
  }
  EXPECT_EQ(parameters, gradients.size());
}

}  // namespace ds::models
