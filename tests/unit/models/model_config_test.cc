#include "runtime/models/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/models/golden_folder.h"

namespace ds::models {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ParseError(const std::string& json) {
  const auto config = ParseModelConfig(json, "config.json");
  EXPECT_FALSE(config.ok()) << json;
  return config.ok() ? "" : config.status().message();
}

LlamaConfig Llama(const std::string& more) {
  const auto config = ParseModelConfig(R"({"model_type": "llama")" + more + "}", "config.json");
  EXPECT_TRUE(config.ok()) << config.status().message();
  return std::get<LlamaConfig>(config->family);
}

TEST(ModelConfig, AbsentKeysHaveTheDefaultsOfTransformers) {
  const ModelConfig gpt2 = ParseModelConfig(R"({"model_type": "gpt2"})", "config.json").value();
  EXPECT_EQ(gpt2.vocab_size, 50257);
  EXPECT_TRUE(gpt2.tied_head);
  EXPECT_EQ(std::get<Gpt2Config>(gpt2.family).mlp_width, 4 * 768);
  EXPECT_EQ(std::get<Gpt2Config>(gpt2.family).residual_dropout, 0.1);
  const LlamaConfig llama = Llama("");
  EXPECT_EQ(llama.head_width, 128);
  EXPECT_EQ(llama.kv_heads, 32);
  EXPECT_EQ(llama.rope.theta, 10000.0);
}

TEST(ModelConfig, ReadsBothSpellingsOfRope) {
  EXPECT_EQ(Llama(R"(, "rope_theta": 5e5)").rope.theta, 5e5);
  EXPECT_EQ(Llama(R"(, "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"})").rope.theta,
            5e5);
  const RopeConfig old =
      Llama(R"(, "rope_theta": 7e5, "rope_scaling": {"type": "linear", "factor": 2.0})").rope;
  EXPECT_EQ(old.theta, 7e5);
  EXPECT_EQ(old.scaling, RopeConfig::Scaling::kLinear);
  EXPECT_EQ(old.factor, 2.0);
}

TEST(ModelConfig, RefusesByNameWhatItDoesNotHonour) {
  EXPECT_THAT(ParseError(R"({"model_type": "gpt2", "activation_function": "mish"})"),
              HasSubstr("'activation_function' is \"mish\""));
  EXPECT_THAT(ParseError(R"({"model_type": "gpt2", "reorder_and_upcast_attn": true})"),
              HasSubstr("'reorder_and_upcast_attn' true is not supported"));
  EXPECT_THAT(ParseError(R"({"model_type": "llama", "rope_scaling": {"rope_type": "yarn"}})"),
              HasSubstr("'rope_scaling': rope_type \"yarn\" is not supported"));
  EXPECT_THAT(ParseError(R"({"model_type": "llama", "rope_scaling": {"rope_type": "linear",
                            "beta_fast": 3}})"),
              HasSubstr("'beta_fast' is not a key known"));
  EXPECT_THAT(ParseError(R"({"model_type": "bert"})"),
              HasSubstr("model_type \"bert\" is not supported; supported are gpt2 and llama"));
}

TEST(ModelConfig, RefusesUnknownKeysWithASuggestion) {
  EXPECT_THAT(ParseError(R"({"model_type": "gpt2", "n_embed": 3})"),
              HasSubstr("config.json: 'n_embed' is not a key known for this model type; did you "
                        "mean 'n_embd'?"));
}

TEST(ModelConfig, RefusesValuesThatMakeNoModel) {
  EXPECT_THAT(ParseError(R"({"model_type": "gpt2", "n_layer": 0})"), HasSubstr("'n_layer'"));
  EXPECT_THAT(ParseError(R"({"model_type": "gpt2", "n_layer": 2.5})"), HasSubstr("'n_layer'"));
  EXPECT_THAT(ParseError(R"({"model_type": "gpt2", "resid_pdrop": 1.5})"),
              HasSubstr("'resid_pdrop' must be a number from 0.0 to 1.0, not 1.5"));
  EXPECT_THAT(ParseError(R"({"model_type": "gpt2", "n_embd": 30, "n_head": 4})"),
              HasSubstr("'n_head' must divide 'n_embd'"));
  EXPECT_THAT(ParseError(R"({"model_type": "llama", "num_key_value_heads": 5})"),
              HasSubstr("'num_key_value_heads' must divide"));
  EXPECT_THAT(ParseError("{]"), StartsWith("config.json: not valid JSON: "));
  EXPECT_THAT(ParseError("[]"), HasSubstr("not a JSON object"));
}

TEST(ModelConfig, FindsFoldersFilesAndPresets) {
  const std::string folder = (GoldenFolder() / "gpt2").string();
  EXPECT_EQ(ReadModelConfig(folder)->folder, folder);
  EXPECT_EQ(ReadModelConfig(folder + "/config.json")->folder, folder);
  EXPECT_EQ(ReadModelConfig("gpt2-demo")->folder, "");
}

TEST(ModelConfig, EveryPresetIsValid) {
  EXPECT_FALSE(ModelPresets().empty());
  for (const std::string& name : ModelPresets()) {
    const auto config = ReadModelConfig(name);
    EXPECT_TRUE(config.ok()) << name << ": " << config.status().message();
  }
}

TEST(ModelConfig, SaysWhatItDidNotFind) {
  EXPECT_THAT(
      ReadModelConfig("gpt2-dem").status().message(),
      HasSubstr("model 'gpt2-dem': no such folder, config.json or preset (presets: gpt2-30m, "
                "gpt2-demo, llama-tiny); did you mean 'gpt2-demo'?"));
  const std::string folder = GoldenFolder().string();
  EXPECT_EQ(ReadModelConfig(folder).status().message(),
            folder + ": the model folder has no config.json");
}

TEST(ModelConfig, BoundsTheSequenceLength) {
  const ModelConfig config = ReadModelConfig("gpt2-demo").value();
  EXPECT_TRUE(CheckSequenceLength(config, 256).ok());
  EXPECT_EQ(CheckSequenceLength(config, 257).message(),
            "a sequence of 257 tokens does not fit the model, which has 256 positions");
}

}  // namespace
}  // namespace ds::models
