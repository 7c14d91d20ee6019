#include "runtime/plan/memory/partition_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/plan/model/families.h"

namespace ds::engine {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

models::DecoderSpec Describe(const char* text) {
  const auto config = ordered_json::parse(text);
  return models::ReadDecoderSpec(config, "config.json", models::UnknownModelKeys::kRefuse).value();
}

models::DecoderSpec Llama() {
  return Describe(R"({"model_type":"llama","vocab_size":48,"hidden_size":24,"intermediate_size":42,
      "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
      "max_position_embeddings":16})");
}

std::string Check(const models::DecoderSpec& model, const char* rules, int parts = 2) {
  return std::string(CheckPartitionRules(ordered_json::parse(rules), model, parts).message());
}

// DeepSpeed's own example, with names of modules and of weights.
TEST(PartitionRules, AcceptsRulesThatMatchThePlan) {
  constexpr const char* kRules = R"({"use_default_specs": false, "strict_mode": true,
      "layer_specs": [
        {"patterns": [".*\\.o_proj$", ".*\\.down_proj\\.weight$"], "partition_type": "row"},
        {"patterns": [".*\\.[qkv]_proj$"], "partition_type": "column"},
        {"patterns": [".*\\.(up|gate)_proj", "lm_head"]}]})";
  EXPECT_EQ(Check(Llama(), kRules), "");
  EXPECT_EQ(Check(Llama(), kRules, /*parts=*/1), "");
  EXPECT_EQ(Check(Llama(), "null"), "");
  EXPECT_EQ(Check(Llama(), R"({"layer_specs": []})"), "");
}

TEST(PartitionRules, AWeightStoredByInputsIsShardedAlike) {
  const auto gpt2 = Describe(R"({"model_type":"gpt2","vocab_size":47,"n_positions":16,"n_embd":24,
      "n_layer":2,"n_head":4})");
  EXPECT_EQ(Check(gpt2, R"({"layer_specs": [
      {"patterns": [".*c_proj$"], "partition_type": "row"}, {"patterns": [".*c_(attn|fc)$"]}]})"),
            "");
  EXPECT_THAT(Check(gpt2, R"({"layer_specs": [{"patterns": [".*c_proj$"]}]})"),
              HasSubstr(R"(c_proj is "column" by layer_specs, and can only be sharded as "row")"));
}

TEST(PartitionRules, ShardsExpertsButNotRouters) {
  const auto mixtral = Describe(R"({"model_type":"mixtral","vocab_size":48,"hidden_size":24,
      "intermediate_size":20,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
      "max_position_embeddings":16,"num_local_experts":4,"num_experts_per_tok":2})");
  EXPECT_EQ(Check(mixtral, R"({"layer_specs": [
      {"patterns": [".*\\.gate$"], "partition_type": "skip"},
      {"patterns": [".*\\.w2$"], "partition_type": "row"}, {"patterns": [".*\\.w[13]$"]}]})"),
            "");
  EXPECT_THAT(Check(mixtral, R"({"layer_specs": [{"patterns": [".*\\.gate$"]}]})"),
              HasSubstr(R"(gate is "column" by layer_specs, and can only be sharded as "skip")"));
}

TEST(PartitionRules, TheFirstThatMatchesDecidesAndItsModelTypesCount) {
  EXPECT_THAT(Check(Llama(), R"({"layer_specs": [
      {"patterns": [".*o_proj"], "partition_type": "skip"},
      {"patterns": [".*o_proj"], "partition_type": "row"}]})"),
              HasSubstr(R"(model.layers.0.self_attn.o_proj is "skip" by layer_specs)"));
  EXPECT_EQ(Check(Llama(), R"({"layer_specs": [
      {"patterns": [".*o_proj"], "partition_type": "skip", "model_types": ["bloom"]}]})"),
            "");
  EXPECT_EQ(Check(Llama(), R"({"layer_specs": [{"patterns": ["o_proj"]}]})"), "")
      << "a name begins with model";
}

TEST(PartitionRules, ADimensionIsThatOfTheType) {
  EXPECT_EQ(Check(Llama(), R"({"layer_specs": [
      {"patterns": [".*o_proj"], "partition_type": "row", "partition_dim": 1},
      {"patterns": [".*q_proj"], "partition_dim": 0}, {"patterns": [".*k_proj"],
       "partition_dim": null}]})"),
            "");
  EXPECT_THAT(
      Check(Llama(), R"({"layer_specs": [{"patterns": [".*q_proj"], "partition_dim": 1}]})"),
      HasSubstr(R"(partition_dim is 1: a weight [out, in] is sharded as "column" along)"));
}

TEST(PartitionRules, WithoutDefaultsUnmatchedWeightsAreNotSharded) {
  EXPECT_THAT(
      Check(Llama(), R"({"use_default_specs": false})"),
      HasSubstr(
          R"(q_proj is "skip" by no rule of layer_specs, and can only be sharded as "column")"));
  EXPECT_THAT(
      Check(Llama(), R"({"use_default_specs": false, "strict_mode": true})"),
      HasSubstr("partition_config.strict_mode: no rule of layer_specs matches model.layers.0"));
  EXPECT_EQ(Check(Llama(), R"({"strict_mode": true})"), "");
}

TEST(PartitionRules, ExpressionsThatAreNoneAreRefused) {
  for (const char* pattern : {"(", "a{100}", ""}) {
    const std::string rules = ordered_json{{"layer_specs", {{{"patterns", {pattern}}}}}}.dump();
    EXPECT_THAT(Check(Llama(), rules.c_str()), HasSubstr("layer_specs[].patterns")) << pattern;
  }
}

}  // namespace
}  // namespace ds::engine
