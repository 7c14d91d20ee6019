#include "runtime/models/weights/model_config.h"

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

DecoderSpec Llama(const std::string& more) {
  const auto config = ParseModelConfig(R"({"model_type": "llama")" + more + "}", "config.json");
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config->decoder;
}

TEST(ModelConfig, AbsentKeysHaveTheDefaultsOfTransformers) {
  const DecoderSpec gpt2 =
      ParseModelConfig(R"({"model_type": "gpt2"})", "config.json").value().decoder;
  EXPECT_EQ(gpt2.vocabulary, 50257);
  EXPECT_TRUE(gpt2.tied_head);
  EXPECT_EQ(gpt2.mlp_width, 4 * 768);
  EXPECT_EQ(gpt2.residual_dropout, 0.1);
  const DecoderSpec llama = Llama("");
  EXPECT_EQ(llama.head_width, 128);
  EXPECT_EQ(llama.kv_heads, 32);
  EXPECT_EQ(llama.rope.theta, 10000.0);
}

TEST(ModelConfig, RefusesJsonThatNoModelHas) {
  const std::string deep(100000, '['), end(100000, ']');
  EXPECT_EQ(
      ParseModelConfig(R"({"vocab_size":)" + deep + end + "}", "config.json").status().message(),
      "config.json: the JSON is nested too deep");
  EXPECT_EQ(ParseModelConfig(R"({"model_type":"llama","rope_theta":1e400})", "config.json")
                .status()
                .code(),
            StatusCode::kInvalidArgument);
}

TEST(ModelConfig, ReadsBothSpellingsOfRope) {
  EXPECT_EQ(Llama(R"(, "rope_theta": 5e5)").rope.theta, 5e5);
  EXPECT_EQ(Llama(R"(, "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"})").rope.theta,
            5e5);
  const RopeSpec old =
      Llama(R"(, "rope_theta": 7e5, "rope_scaling": {"type": "linear", "factor": 2.0})").rope;
  EXPECT_EQ(old.theta, 7e5);
  EXPECT_EQ(old.scaling, RopeSpec::Scaling::kLinear);
  EXPECT_EQ(old.factor, 2.0);
}

TEST(ModelConfig, ANullMeansNoneWhereTransformersHasNone) {
  const auto read = [](const std::string& json) {
    return ParseModelConfig(json, "config.json").value().decoder;
  };
  EXPECT_EQ(read(R"({"model_type": "mistral"})").window, 4096);
  EXPECT_EQ(read(R"({"model_type": "mistral", "sliding_window": null})").window, 0);
  EXPECT_EQ(read(R"({"model_type": "mistral", "num_key_value_heads": null})").kv_heads, 32);
  EXPECT_EQ(read(R"({"model_type": "gemma2", "final_logit_softcapping": null})").logit_soft_cap, 0);
}

TEST(ModelConfig, LayersDifferAsTheirTypesSay) {
  const DecoderSpec gemma =
      ParseModelConfig(R"({"model_type": "gemma3_text", "num_hidden_layers": 7})", "config.json")
          .value()
          .decoder;
  EXPECT_TRUE(gemma.KindOf(4).windowed);
  EXPECT_FALSE(gemma.KindOf(5).windowed);
  EXPECT_EQ(gemma.rope.theta, 1e6);
  EXPECT_EQ(gemma.windowed_rope->theta, 1e4);
  EXPECT_THAT(ParseError(R"({"model_type": "qwen2", "num_hidden_layers": 1,
                            "layer_types": ["chunked_attention"]})"),
              HasSubstr("'layer_types' has \"chunked_attention\""));
  EXPECT_THAT(ParseError(R"({"model_type": "qwen2", "layer_types": ["full_attention"]})"),
              HasSubstr("'layer_types' has 1 elements for a model of 32 layers"));
}

TEST(ModelConfig, RefusesUnsupportedKeysByName) {
  EXPECT_THAT(ParseError(R"({"model_type": "falcon", "hidden_dropout": 0.1})"),
              HasSubstr("'hidden_dropout' other than 0 is not supported"));
  EXPECT_THAT(ParseError(R"({"model_type": "opt", "word_embed_proj_dim": 512})"),
              HasSubstr("'word_embed_proj_dim' must equal 'hidden_size'"));
  EXPECT_THAT(ParseError(R"({"model_type": "mixtral", "router_jitter_noise": 0.1})"),
              HasSubstr("'router_jitter_noise' other than 0 is not supported"));
  EXPECT_THAT(ParseError(R"({"model_type": "mixtral", "num_experts_per_tok": 9})"),
              HasSubstr("'num_experts_per_tok' must be at most 'num_local_experts', 8"));
  EXPECT_THAT(ParseError(R"({"model_type": "qwen3_moe", "num_experts": 1000000})"),
              HasSubstr("'num_experts' must be at most 100000"));
  EXPECT_THAT(ParseError(R"({"model_type": "qwen2_moe", "mlp_only_layers": [24]})"),
              HasSubstr("'mlp_only_layers' must have numbers of layers"));
  EXPECT_THAT(ParseError(R"({"model_type": "llama", "pad_token_id": 32000})"),
              HasSubstr("'pad_token_id' is outside the vocabulary of 32000 tokens"));
  EXPECT_THAT(ParseError(R"({"model_type": "phi3", "rope_scaling": {"type": "longrope",
                            "short_factor": [1], "long_factor": [1]}})"),
              HasSubstr("must have 48 elements"));
  EXPECT_THAT(ParseError(R"({"model_type": "phi3", "hidden_size": 4, "num_attention_heads": 1,
                            "num_key_value_heads": 1, "rope_scaling": {"type": "longrope",
                            "short_factor": [1, 0], "long_factor": [1, 1]}})"),
              HasSubstr("of longrope must be above 0"));
  EXPECT_THAT(ParseError(R"({"model_type": "llama", "num_hidden_layers": 1000000000})"),
              HasSubstr("'num_hidden_layers' must be at most 100000"));

  EXPECT_THAT(ParseError(R"({"model_type": "gpt2", "activation_function": "mish"})"),
              HasSubstr("'activation_function' is \"mish\""));
  EXPECT_THAT(ParseError(R"({"model_type": "gpt2", "reorder_and_upcast_attn": true})"),
              HasSubstr("'reorder_and_upcast_attn' true is not supported"));
  EXPECT_THAT(ParseError(R"({"model_type": "llama", "rope_scaling": {"rope_type": "ntk"}})"),
              HasSubstr("'rope_scaling': rope_type \"ntk\" is not supported"));
  EXPECT_THAT(ParseError(R"({"model_type": "llama", "rope_scaling": {"rope_type": "linear",
                            "beta_fast": 3}})"),
              HasSubstr("'beta_fast' is not a key known"));
  EXPECT_THAT(
      ParseError(R"({"model_type": "bert"})"),
      HasSubstr(
          "model_type \"bert\" is not supported; supported are bloom, deepseek_v2, falcon, "));
}

TEST(ModelConfig, RefusesUnsupportedKeysOfLatentAttentionAndItsRouter) {
  const auto error = [](const std::string& key) {
    return ParseError(R"({"model_type": "deepseek_v2", "num_experts_per_tok": 2, )" + key + "}");
  };
  EXPECT_THAT(ParseError(R"({"model_type": "deepseek_v2"})"),
              HasSubstr("'num_experts_per_tok' is missing"));
  EXPECT_THAT(error(R"("qk_rope_head_dim": 7)"), HasSubstr("'qk_rope_head_dim' must be even"));
  EXPECT_THAT(error(R"("num_key_value_heads": 4)"), HasSubstr("'num_key_value_heads' must be"));
  EXPECT_THAT(error(R"("first_k_dense_replace": 1.5)"), HasSubstr("must be a whole number of"));
  EXPECT_THAT(error(R"("norm_topk_prob": true)"), HasSubstr("'norm_topk_prob' true is not"));
  EXPECT_THAT(error(R"("scoring_func": "sigmoid")"), HasSubstr("must be softmax"));
  EXPECT_THAT(error(R"("topk_method": "noaux_tc")"), HasSubstr("supported are greedy and group"));
  EXPECT_THAT(error(R"("topk_method": "group_limited_greedy", "n_group": 5)"),
              HasSubstr("'n_group' must divide n_routed_experts"));
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

TEST(ModelConfig, NamesMissingKeys) {
  EXPECT_THAT(
      ReadModelConfig("gpt2-dem").status().message(),
      HasSubstr("model 'gpt2-dem': no such folder, config.json or preset (presets: gemma3-tiny, "
                "gpt2-30m, gpt2-demo, llama-tiny, mistral-tiny, mixtral-tiny, neox-tiny, "
                "phi3-tiny, qwen3-tiny); "
                "did you mean 'gpt2-demo'?"));
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
