#include "runtime/models/spec/lora_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// PEFT's own file, with some keys changed.
StatusOr<LoraSpec> ReadWith(const nlohmann::json& changes) {
  auto json = nlohmann::json::parse(
      *ReadFile(DS_SOURCE_DIR "/tests/numerics/goldens/lora/llama/adapter_config.json"));
  json.update(changes);
  const ds::testing::TemporaryFolder folder;
  EXPECT_TRUE(WriteFileAtomically(folder.path() / kAdapterConfigFile, json.dump()).ok());
  return ReadLoraSpec(folder.path());
}

std::string ErrorWith(const nlohmann::json& changes) {
  const auto spec = ReadWith(changes);
  return spec.ok() ? "accepted" : spec.status().message();
}

TEST(LoraSpecTest, ReadsWhatPeftWrites) {
  const LoraSpec spec = ReadWith(nlohmann::json::object()).value();
  EXPECT_EQ(spec.rank, 4);
  EXPECT_EQ(spec.alpha, 8.0);
  EXPECT_EQ(spec.scale(), 2.0);
  EXPECT_THAT(spec.targets, ElementsAre("down_proj", "q_proj", "v_proj"));
  EXPECT_EQ(ReadWith({{"use_rslora", true}})->scale(), 4.0);
  EXPECT_FALSE(spec.magnitudes);
  EXPECT_TRUE(ReadWith({{"use_dora", true}})->magnitudes);
  EXPECT_TRUE(ReadWith({{"target_modules", "all-linear"}})->targets.empty());
}

TEST(LoraSpecTest, RefusesByNameWhatChangesTheMathematics) {
  EXPECT_THAT(ErrorWith({{"use_qalora", true}}),
              HasSubstr("'use_qalora' is true, which is not built"));
  EXPECT_THAT(ErrorWith({{"lora_dropout", 0.1}}), HasSubstr("'lora_dropout' is 0.1"));
  EXPECT_THAT(ErrorWith({{"bias", "all"}}), HasSubstr("'bias' is \"all\""));
  EXPECT_THAT(ErrorWith({{"rank_pattern", {{"q_proj", 8}}}}), HasSubstr("'rank_pattern'"));
  EXPECT_THAT(ErrorWith({{"modules_to_save", {"lm_head"}}}), HasSubstr("'modules_to_save'"));
  EXPECT_THAT(ErrorWith({{"target_modules", ".*q_proj"}}), HasSubstr("is a pattern"));
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
