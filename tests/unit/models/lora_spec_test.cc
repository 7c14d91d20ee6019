#include "runtime/plan/model/lora_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::filesystem::path kGolden = DS_SOURCE_DIR "/tests/numerics/goldens/lora";

// PEFT's own folder, with some keys of its description changed.
StatusOr<LoraSpec> ReadWith(const nlohmann::json& changes, const std::string& name = "llama") {
  auto json = nlohmann::json::parse(*ReadFile(kGolden / name / kAdapterConfigFile));
  json.update(changes);
  const ds::testing::TemporaryFolder folder;
  EXPECT_TRUE(WriteFileAtomically(folder.path() / kAdapterConfigFile, json.dump()).ok());
  std::filesystem::copy_file(kGolden / name / kAdapterWeightsFile,
                             folder.path() / kAdapterWeightsFile);
  return ReadLoraSpec(folder.path());
}

std::string ErrorWith(const nlohmann::json& changes) {
  const auto spec = ReadWith(changes);
  return spec.ok() ? "accepted" : spec.status().message();
}

TEST(LoraSpecTest, ReadsFilesOfPeft) {
  const LoraSpec spec = ReadWith(nlohmann::json::object()).value();
  EXPECT_EQ(spec.rank, 4);
  EXPECT_EQ(spec.alpha, 8.0);
  EXPECT_EQ(spec.scale(), 2.0);
  EXPECT_THAT(spec.targets, ElementsAre("down_proj", "q_proj", "v_proj"));
  EXPECT_EQ(ReadWith({{"use_rslora", true}})->scale(), 4.0);
  EXPECT_FALSE(spec.magnitudes);
  EXPECT_TRUE(ReadWith(nlohmann::json::object(), "llama_dora")->magnitudes);
  EXPECT_TRUE(ReadWith({{"target_modules", "all-linear"}})->targets.empty());
  EXPECT_EQ(ReadWith({{"lora_dropout", 0.05}})->dropout, 0.05);
  EXPECT_EQ(spec.layers.size(), 6U);
  EXPECT_EQ(spec.Find("model.layers.1.self_attn.q_proj")->rank, 4);
  EXPECT_FALSE(spec.Find("model.layers.1.self_attn.k_proj").has_value());
}

TEST(LoraSpecTest, TargetsMayBePatternsOrFullNames) {
  const nlohmann::json full = {"model.layers.0.self_attn.q_proj", "layers.1.self_attn.q_proj",
                               "v_proj", "down_proj"};
  for (const nlohmann::json& targets :
       {nlohmann::json(R"(.*layers\.\d+\.(self_attn\.(q|v)_proj|mlp\.down_proj))"),
        nlohmann::json("(?!.*lm_head).*_proj"), full}) {
    EXPECT_EQ(ErrorWith({{"target_modules", targets}}), "accepted");
  }
  EXPECT_EQ(ErrorWith({{"layers_to_transform", {0, 1}}, {"layers_pattern", "layers"}}), "accepted");
  EXPECT_EQ(ErrorWith({{"exclude_modules", {"k_proj"}}}), "accepted");
  EXPECT_EQ(ReadWith({{"alpha_pattern", {{"0.self_attn.q_proj", 16}, {"v_.*", 4}}}})
                ->Find("model.layers.0.self_attn.q_proj")
                ->scale,
            4.0);
}

TEST(LoraSpecTest, RefusesSettingsThatContradictTheTensors) {
  EXPECT_THAT(ErrorWith({{"target_modules", {"q_proj", "v_proj"}}}),
              HasSubstr("tensors of model.layers.0.mlp.down_proj, which target_modules"));
  EXPECT_THAT(ErrorWith({{"target_modules", ".*q_proj"}}), HasSubstr("contradict each other"));
  EXPECT_THAT(ErrorWith({{"layers_to_transform", 1}}), HasSubstr("model.layers.0.mlp.down_proj"));
  EXPECT_THAT(ErrorWith({{"exclude_modules", ".*1.*v_proj"}}),
              HasSubstr("model.layers.1.self_attn.v_proj"));
  EXPECT_THAT(ErrorWith({{"r", 8}}), HasSubstr("down_proj has rank 4, and r says 8"));
  EXPECT_THAT(ErrorWith({{"rank_pattern", {{"q_proj", 8}}}}),
              HasSubstr("q_proj has rank 4, and rank_pattern says 8"));
  for (const double rank : {4.5, 1e300, 0.5}) {
    EXPECT_THAT(ErrorWith({{"rank_pattern", {{"q_proj", rank}}}}),
                HasSubstr("q_proj: rank_pattern of adapter_config.json must be a whole number"))
        << rank;
  }
  EXPECT_THAT(ErrorWith({{"use_dora", true}}), HasSubstr("has no lora_magnitude_vector"));
  EXPECT_THAT(ErrorWith({{"modules_to_save", {"lm_head"}}}),
              HasSubstr("names lm_head, but the first has no tensor of it"));
  EXPECT_THAT(ErrorWith({{"target_modules", "(unclosed"}}),
              HasSubstr("'target_modules': the pattern '(unclosed' is not understood"));
}

TEST(LoraSpecTest, OnlyTheDescriptionIsNoAdapter) {
  const ds::testing::TemporaryFolder folder;
  std::filesystem::copy_file(kGolden / "llama" / kAdapterConfigFile,
                             folder.path() / kAdapterConfigFile);
  EXPECT_THAT(ReadLoraSpec(folder.path()).status().message(),
              HasSubstr("adapter_model.safetensors"));
  ASSERT_TRUE(WriteFileAtomically(folder.path() / "adapter_model.bin", "x").ok());
  EXPECT_THAT(ReadLoraSpec(folder.path()).status().message(), HasSubstr("a pickle"));
  ASSERT_TRUE(WriteFileAtomically(folder.path() / kAdapterWeightsFile,
                                  "version https://git-lfs.github.com/spec/v1\noid sha256:00\n")
                  .ok());
  EXPECT_THAT(ReadLoraSpec(folder.path()).status().message(), HasSubstr("Git LFS pointer"));
}

TEST(LoraSpecTest, TheFolderAndTheModelMustFit) {
  const LoraSpec spec = ReadWith(nlohmann::json::object()).value();
  std::vector<std::string> layers;
  for (const auto& [layer, of] : spec.layers) layers.push_back(layer);
  EXPECT_TRUE(CheckFits(spec, {.layers = layers}).ok());
  layers.push_back("model.layers.2.mlp.down_proj");
  EXPECT_THAT(CheckFits(spec, {.layers = layers}).message(),
              HasSubstr("covers model.layers.2.mlp.down_proj, but"));
  EXPECT_THAT(CheckFits(spec, {.layers = {"model.layers.0.self_attn.q_proj"}}).message(),
              HasSubstr("the model has no such linear layer"));
  LoraSpec tables = ReadLoraSpec(kGolden / "../adapters/saves_both_tables").value();
  ModelNames names{.parameters = {"model.embed_tokens.weight", "lm_head.weight"}};
  for (const auto& [layer, of] : tables.layers) names.layers.push_back(layer);
  EXPECT_TRUE(CheckFits(tables, names).ok());
  names.tied_table = "model.embed_tokens.weight";
  EXPECT_THAT(
      CheckFits(tables, names).message(),
      HasSubstr(
          "has model.embed_tokens.weight in full, to train it, and PEFT then unties the head"));
  names.tied_table.clear();
  names.parameters.pop_back();
  EXPECT_THAT(CheckFits(tables, names).message(), HasSubstr("has lm_head.weight in full"));
}

// What PEFT 0.21 saves over a tied head, and when it trains a head of its own.
TEST(LoraSpecTest, ATiedHeadIsTakenForTheTableWherePeftKeepsItTied) {
  const std::string table = "model.embed_tokens.weight", head = "lm_head.weight";
  const auto take = [&](const std::string& folder, const auto& change) {
    LoraSpec spec = ReadLoraSpec(kGolden / "../adapters" / folder).value();
    change(&spec);
    ModelNames names{.parameters = {table}, .tied_table = table};
    for (const auto& [layer, of] : spec.layers) names.layers.push_back(layer);
    TakeTiedHead(names, &spec);
    TakeTiedHead(names, &spec);
    const Status fits = CheckFits(spec, names);
    EXPECT_EQ(spec.copies.contains(table), fits.ok()) << folder;
    return fits.ok() ? "ties" : fits.message();
  };
  const auto as_it_is = [](LoraSpec* /*spec*/) {};
  EXPECT_EQ(take("ties_embedding", as_it_is), "ties");
  EXPECT_EQ(take("ties_head", as_it_is), "ties");
  EXPECT_EQ(take("tied_embeddings_too", as_it_is), "ties");
  EXPECT_THAT(take("saves_both_tables", as_it_is), HasSubstr("ensure_weight_tying=True"));
  EXPECT_THAT(take("saves_head", as_it_is), HasSubstr("has lm_head.weight in full, to train it"));
  EXPECT_THAT(take("ties_embedding", [&](LoraSpec* spec) { spec->ties_weights = false; }),
              HasSubstr("PEFT then unties the head"));
  EXPECT_THAT(take("ties_embedding", [&](LoraSpec* spec) { spec->full.erase(head); }),
              HasSubstr("PEFT then unties the head"));
}

TEST(LoraSpecTest, RefusesSettingsThatChangeTheMathematics) {
  EXPECT_THAT(ErrorWith({{"use_qalora", true}}),
              HasSubstr("'use_qalora' is true, which is not built"));
  EXPECT_THAT(ErrorWith({{"trainable_token_indices", {1, 2}}}),
              HasSubstr("'trainable_token_indices' is [1,2], which is not built"));
  EXPECT_THAT(ErrorWith({{"lora_dropout", 1.5}}), HasSubstr("'lora_dropout' must be a number"));
  EXPECT_THAT(ErrorWith({{"bias", "some"}}), HasSubstr("'bias' must be"));
  EXPECT_THAT(ErrorWith({{"peft_type", "IA3"}}), HasSubstr("'peft_type' is not LORA"));
  EXPECT_THAT(ErrorWith({{"lora_gamma", 2}}), HasSubstr("unknown key 'lora_gamma'"));
  EXPECT_EQ(ErrorWith({{"lora_gamma", nullptr}}), "accepted");
}

// PEFT makes W - scale * B A of the layer's W, with the first A and B, whenever it loads these.
TEST(LoraSpecTest, RefusesAdaptersOfOtherWeightsThanTheBaseModels) {
  for (const char* init :
       {"pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga", "mica"}) {
    EXPECT_THAT(ErrorWith({{"init_lora_weights", init}}),
                HasSubstr("'init_lora_weights' is \"" + std::string(init) + "\""));
  }
  for (const nlohmann::json& init : {nlohmann::json(false), nlohmann::json(nullptr),
                                     nlohmann::json("gaussian"), nlohmann::json("eva")}) {
    EXPECT_EQ(ErrorWith({{"init_lora_weights", init}}), "accepted") << init;
  }
}

TEST(LoraSpecTest, RefusesNumbersThatMakeNoSense) {
  EXPECT_THAT(ErrorWith({{"r", 0}}), HasSubstr("'r' must be a whole number from 1 to 1048576"));
  EXPECT_THAT(ErrorWith({{"r", 2.5}}), HasSubstr("'r'"));
  EXPECT_THAT(ErrorWith({{"lora_alpha", 0}}), HasSubstr("'lora_alpha' must be a number above 0"));
}

TEST(LoraSpecTest, AdaptersAreKnownByTheirNames) {
  EXPECT_TRUE(IsLoraParameter("model.layers.0.mlp.up_proj.lora_A.weight"));
  EXPECT_FALSE(IsLoraParameter("model.layers.0.mlp.up_proj.weight"));
}

}  // namespace
}  // namespace ds::models
