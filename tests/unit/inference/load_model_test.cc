#include "runtime/inference/load_model.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"
#include "tests/unit/models/golden_folder.h"

namespace ds::inference {
namespace {

namespace fs = std::filesystem;
using ::ds::testing::TemporaryFolder;
using ::testing::HasSubstr;

models::ModelConfig GoldenConfig() {
  return models::ReadModelConfig((models::GoldenFolder() / "llama").string()).value();
}

TEST(LoadModelTest, TheDtypeIsTheUsersOrTheFoldersOrFp32) {
  models::ModelConfig config = GoldenConfig();
  config.json.erase("dtype");
  EXPECT_EQ(FindDtype("auto", config).value(), c10::kFloat);
  config.json["torch_dtype"] = "float16";
  EXPECT_EQ(FindDtype("auto", config).value(), c10::kHalf);
  config.json["dtype"] = "bfloat16";
  EXPECT_EQ(FindDtype("auto", config).value(), c10::kBFloat16);
  EXPECT_EQ(FindDtype("float32", config).value(), c10::kFloat);
  config.json["dtype"] = "float8_e4m3fn";
  EXPECT_THAT(FindDtype("auto", config).status().message(),
              HasSubstr("dtype = \"float8_e4m3fn\" is not built; --dtype float32"));
}

TEST(LoadModelTest, WeightsAreReadInAnyDtypeOrDrawn) {
  const models::ModelConfig config = GoldenConfig();
  const LoadedModel read = LoadModel(config, c10::kBFloat16, 1).value();
  EXPECT_TRUE(read.has_weights);
  EXPECT_FALSE(read.blocks->block(0).is_training());
  const auto expected = models::LoadGoldenModel("llama");
  const at::Tensor table = read.blocks->block(0).parameters().front();
  EXPECT_TRUE(table.equal(expected->block(0).parameters().front().to(at::kBFloat16)));

  TemporaryFolder folder;
  fs::copy_file(config.folder / "config.json", folder.path() / "config.json");
  const auto bare = models::ReadModelConfig(folder.path().string()).value();
  const LoadedModel drawn = LoadModel(bare, c10::kFloat, 1).value();
  EXPECT_FALSE(drawn.has_weights);
  const LoadedModel again = LoadModel(bare, c10::kFloat, 1).value();
  EXPECT_TRUE(drawn.blocks->block(1).parameters().front().equal(
      again.blocks->block(1).parameters().front()));
}

TEST(LoadModelTest, AdaptersAreNextToTheWeights) {
  const models::ModelConfig config = GoldenConfig();
  const fs::path adapters = DS_SOURCE_DIR "/tests/numerics/goldens/lora";
  const auto logits = [](const LoadedModel& model) {
    const at::Tensor tokens = at::arange(24, at::kLong).view({1, 24});
    return RunBlocks(*model.blocks, {.batch = {{"tokens", tokens}}}).extras.at("logits");
  };
  const LoadedModel plain = LoadModel(config, c10::kFloat, 1).value();
  for (const char* name : {"llama", "llama_dora"}) {
    const LoadedModel adapted = LoadModel(config, c10::kFloat, 1, adapters / name).value();
    EXPECT_FALSE(logits(adapted).allclose(logits(plain), 1e-3, 1e-3)) << name;
  }
  EXPECT_THAT(LoadModel(config, c10::kFloat, 1, adapters / "gpt2_rslora").status().message(),
              HasSubstr("an adapter of transformer.h.0.attn.c_attn: the model has no such linear"));
}

// Adapters of every kind of description (scripts/goldens/make_adapter_goldens.py).
TEST(LoadModelTest, AdaptersMatchPeft) {
  const fs::path adapters = models::GoldenFolder() / "adapters";
  const auto goldens = nlohmann::json::parse(*ReadFile(adapters / "goldens.json"));
  int compared = 0;
  for (const auto& [name, golden] : goldens.items()) {
    if (name == "peft") continue;
    SCOPED_TRACE(name);
    const fs::path base = models::GoldenFolder() / golden["base"].get<std::string>();
    const auto config = models::ReadModelConfig(base.string()).value();
    const auto model = LoadModel(config, c10::kFloat, 1, adapters / name);
    ASSERT_TRUE(model.ok()) << model.status().message();
    const at::Tensor tokens = at::arange(24, at::kLong).view({1, 24});
    const at::Tensor logits =
        RunBlocks(*model->blocks, {.batch = {{"tokens", tokens}}}).extras.at("logits");
    const at::Tensor last = logits.reshape({-1, logits.size(-1)})[-1];
    for (std::size_t i = 0; i < golden["logits"].size(); ++i) {
      const double expected = golden["logits"][i];
      EXPECT_NEAR(last[static_cast<std::int64_t>(10 * i)].item<double>(), expected,
                  2e-4 * std::max(1.0, std::abs(expected)));
    }
    ++compared;
  }
  EXPECT_GE(compared, 30);
}

TEST(LoadModelTest, AFolderOfAnotherModelIsRefused) {
  models::ModelConfig config = GoldenConfig();
  config.decoder.vocabulary += 1;
  const auto loaded = LoadModel(config, c10::kFloat, 1);
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.status().message(), HasSubstr("embed_tokens"));
}

}  // namespace
}  // namespace ds::inference
