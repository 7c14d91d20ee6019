// A model folder gives the loss and the gradients that transformers computes from it.

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include "tests/unit/models/golden_folder.h"

namespace ds::models {
namespace {

class TransformersGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(TransformersGolden, FirstBatchHasTheSameLossAndGradients) {
  const nlohmann::json file = ReadGolden(GetParam());
  const nlohmann::json& golden = file["forward"];
  const auto model = LoadGoldenModel(GetParam());
  const Bundle result = RunBlocks(*model, GoldenBatch(file, golden["batch"].get<int>()));
  EXPECT_NEAR(result.loss.item<double>(), golden["loss"].get<double>(), 1e-6);

  result.loss.backward();
  std::size_t parameters = 0;
  for (const auto& block : model->blocks()) {
    for (const auto& item : block->named_parameters()) {
      const std::string name = block->FullName(item.key());
      ASSERT_TRUE(golden["gradients"].contains(name)) << name;
      const nlohmann::json& expected = golden["gradients"][name];
      const at::Tensor gradient = item.value().grad().to(at::kDouble).flatten();
      const at::Tensor waves = at::arange(gradient.numel(), at::kDouble).cos();
      const double norm = expected["norm"];
      EXPECT_NEAR(gradient.norm().item<double>(), norm, 1e-5 * norm) << name;
      EXPECT_NEAR(gradient.dot(waves).item<double>(), expected["probe"].get<double>(), 1e-5 * norm)
          << name;
      ++parameters;
    }
  }
  EXPECT_EQ(parameters, golden["gradients"].size());
}

INSTANTIATE_TEST_SUITE_P(
    Folders, TransformersGolden,
    ::testing::Values("gpt2", "llama", "variants/gpt2_untied_by_layer",
                      "variants/gpt2_unscaled_relu", "variants/llama_biases_tied",
                      "variants/llama_linear_rope", "variants/llama_llama3_rope"),
    [](const auto& info) { return std::filesystem::path(info.param).filename().string(); });

}  // namespace
}  // namespace ds::models
