#include "runtime/plan/memory/expert_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/plan/model/families.h"

namespace ds::engine {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr const char* kMixtral = R"({"model_type":"mixtral","vocab_size":48,"hidden_size":24,
    "intermediate_size":20,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
    "max_position_embeddings":16,"num_local_experts":4,"num_experts_per_tok":2})";
// One dense layer, two shared experts, groups of experts.
constexpr const char* kDeepseek = R"({"model_type":"deepseek_v2","vocab_size":48,"hidden_size":24,
    "intermediate_size":20,"num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":4,
    "max_position_embeddings":16,"kv_lora_rank":8,"q_lora_rank":null,"qk_nope_head_dim":4,
    "qk_rope_head_dim":4,"v_head_dim":6,"n_routed_experts":8,"n_shared_experts":2,
    "num_experts_per_tok":3,"moe_intermediate_size":12,"first_k_dense_replace":1,
    "topk_method":"group_limited_greedy","n_group":4,"topk_group":2,
    "routed_scaling_factor":2.5})";

constexpr const char* kLlama = R"({"model_type":"llama","vocab_size":48,"hidden_size":24,
    "intermediate_size":42,"num_hidden_layers":2,"num_attention_heads":4,
    "max_position_embeddings":16})";

// One expert a token.
constexpr const char* kQwen = R"({"model_type":"qwen2_moe","vocab_size":48,"hidden_size":24,
    "intermediate_size":20,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
    "max_position_embeddings":16,"num_experts":6,"num_experts_per_tok":1,
    "moe_intermediate_size":12,"shared_expert_intermediate_size":14})";

std::string Check(const char* model, const std::string& keys) {
  const auto config = ordered_json::parse(model);
  const auto spec =
      models::ReadDecoderSpec(config, "config.json", models::UnknownModelKeys::kRefuse);
  const auto section = ordered_json::parse(R"({"enabled": true, "autoep_size": 2, )" + keys + "}");
  return std::string(CheckExpertRules(section, config, spec.value()).message());
}

TEST(ExpertRules, AcceptsKeysThatMatchTheModel) {
  EXPECT_EQ(Check(kMixtral, R"("top_k": 2, "score_func": "softmax", "score_apply": "post",
      "combine_impl": "weighted_sum", "route_norm": true, "num_expert_groups": 1,
      "num_limited_groups": 1, "routed_scaling_factor": 1, "has_shared_experts": false,
      "preset_model": "mixtral", "num_experts_attr": "num_local_experts",
      "top_k_attr": "num_experts_per_tok")"),
            "");
  EXPECT_EQ(Check(kDeepseek, R"("top_k": 3, "route_norm": false, "num_expert_groups": 4,
      "num_limited_groups": 2, "routed_scaling_factor": 2.5, "route_scale": 2.5,
      "has_shared_experts": true, "shared_experts_pattern": "shared_experts",
      "preset_model": "deepseek_v2", "num_experts_attr": "n_routed_experts")"),
            "");
}

TEST(ExpertRules, NamesAreThoseOfTheFileOrOfTransformers) {
  EXPECT_EQ(Check(kMixtral, R"("router_pattern": "gate", "expert_pattern": "experts",
      "expert_w1": "w1", "expert_w2": "w2", "expert_w3": "w3",
      "moe_layer_pattern": "model\\.layers\\.\\d+\\.block_sparse_moe")"),
            "");
  EXPECT_EQ(Check(kMixtral, R"("expert_w1": "gate_up_proj", "expert_w2": "down_proj",
      "expert_w3": null, "moe_layer_pattern": "model\\.layers\\.\\d+\\.mlp")"),
            "");
  EXPECT_EQ(Check(kDeepseek, R"("moe_layer_pattern": "model\\.layers\\.[12]\\.mlp")"), "");
}

TEST(ExpertRules, KeysAtTheirDefaultAreSilent) {
  EXPECT_EQ(Check(kDeepseek, R"("top_k": "auto", "score_func": "auto", "route_norm": null,
      "route_scale": 1.0, "expert_w3": "unset", "preset_model": null, "num_expert_groups": null)"),
            "");
  const auto config = ordered_json::parse(kMixtral);
  const auto spec =
      models::ReadDecoderSpec(config, "config.json", models::UnknownModelKeys::kRefuse).value();
  EXPECT_TRUE(CheckExpertRules(ordered_json(), config, spec).ok());
  EXPECT_TRUE(CheckExpertRules(ordered_json::parse(R"({"top_k": 7})"), config, spec).ok());
}

struct Contradiction {
  const char* model;
  const char* key;
  const char* message;
};

TEST(ExpertRules, RefusesKeysThatContradictTheModel) {
  for (const Contradiction& each : {
           Contradiction{kMixtral, R"("top_k": 3)",
                         "expert_parallel.top_k is 3, and mixtral has 2 as its experts of a token: "
                         "write that, or leave it out"},
           Contradiction{kMixtral, R"("score_func": "sigmoid")", R"(and mixtral has "softmax" as)"},
           Contradiction{kMixtral, R"("score_apply": "pre")", R"(and mixtral has "post" as)"},
           Contradiction{kMixtral, R"("combine_impl": "legacy_bmm")", R"(has "weighted_sum" as)"},
           Contradiction{kMixtral, R"("route_norm": false)", "and mixtral has true as"},
           Contradiction{kDeepseek, R"("route_norm": true)", "and deepseek_v2 has false as"},
           Contradiction{kMixtral, R"("route_scale": 2.0)",
                         "route_scale is 2.0, and mixtral has 1"},
           Contradiction{kDeepseek, R"("routed_scaling_factor": 1.0)", "deepseek_v2 has 2.5 as"},
           Contradiction{kMixtral, R"("num_expert_groups": 2)", "has 1 as its groups of experts"},
           Contradiction{kDeepseek, R"("num_limited_groups": 1)", "has 2 as the groups that"},
           Contradiction{kMixtral, R"("has_shared_experts": true)", "mixtral has false as"},
           Contradiction{kMixtral, R"("preset_model": "qwen3_moe")", R"(has "mixtral" as its)"},
           Contradiction{kMixtral, R"("router_pattern": "router")", R"(has "gate" as its router)"},
           Contradiction{kMixtral, R"("expert_w1": "up_proj")", R"(has "w1" as an expert's gate)"},
           Contradiction{kMixtral, R"("shared_experts_pattern": "shared_expert")",
                         "mixtral has nothing as its shared expert: leave it out"},
           Contradiction{kMixtral, R"("num_experts_attr": "n_routed_experts")",
                         "the model's config.json has no such key"},
           Contradiction{kMixtral, R"("top_k_attr": "num_local_experts")",
                         "of the model's config.json that is 4, where 2 counts"},
           Contradiction{kMixtral, R"("moe_layer_pattern": "model\\.layers\\.0\\.mlp")",
                         "model.layers.1.block_sparse_moe has experts, too"},
           Contradiction{kMixtral, R"("moe_layer_pattern": "(")", "is no regular expression"},
           Contradiction{kMixtral, R"("moe_layer_pattern": "(a{9}){9}")", "without { is taken"},
       }) {
    EXPECT_THAT(Check(each.model, each.key), HasSubstr(each.message)) << each.key;
  }
}

TEST(ExpertRules, ShowsALongPatternWithAnyCharacters) {
  const std::string pattern =
      std::string(199, 'a') + "\xC3\xA4";  // two bytes, of which one is shown
  EXPECT_THAT(Check(kMixtral, "\"moe_layer_pattern\": \"" + pattern + "\""),
              HasSubstr("an expression of up to 200 characters without { is taken"));
}

TEST(ExpertRules, AModelWithoutExpertsHasNoneToSpeakOf) {
  EXPECT_THAT(
      Check(kLlama, R"("top_k": 2)"),
      HasSubstr("top_k is 2, and llama has nothing as its experts of a token: leave it out"));
}

// What is wrong with the `moe` section; "" where the model takes it.
std::string Take(const char* model, const config::MoeConfig& section) {
  auto spec = models::ReadDecoderSpec(ordered_json::parse(model), "config.json",
                                      models::UnknownModelKeys::kIgnore)
                  .value();
  const Status status = TakeMoeSection(section, &spec);
  EXPECT_EQ(spec.expert_gate.has_value(), status.ok() && section.gate.has_value());
  EXPECT_EQ(spec.shared_expert_mix == models::SharedExpertMix::kWeighted,
            status.ok() && section.residual);
  return std::string(status.message());
}

TEST(ExpertGate, IsAcceptedForModelsWithRoutesThatItCanWeight) {
  const config::ExpertGateConfig gate{.capacity_factor = 1.25};
  EXPECT_EQ(Take(kMixtral, {}), "");
  EXPECT_EQ(Take(kMixtral, {.experts = 4, .experts_per_token = 2, .gate = gate}), "");
  EXPECT_EQ(Take(kQwen, {.gate = gate}), "") << "one expert a token, by its probability";
  EXPECT_THAT(Take(kMixtral, {.experts = 8}), HasSubstr("moe.num_experts is 8, and mixtral has 4"));
  EXPECT_THAT(Take(kMixtral, {.experts_per_token = 1, .gate = gate}),
              HasSubstr("moe.k is 1, and mixtral has 2"));
  EXPECT_THAT(Take(kDeepseek, {.gate = gate}),
              HasSubstr("deepseek_v2 chooses among groups of experts"));
  auto draws = gate;
  draws.noise = config::ExpertGateNoise::kRSample;
  EXPECT_EQ(Take(kQwen, {.gate = draws}), "");
  EXPECT_THAT(Take(kMixtral, {.gate = draws}),
              HasSubstr("RSample samples the single expert of a token"));
}

TEST(ResidualMlp, IsAsWideAsAnExpertOfAModelThatHasNothingElseForAllTokens) {
  EXPECT_EQ(Take(kMixtral, {.residual = true}), "");
  EXPECT_EQ(Take(kMixtral, {.experts = 4, .gate = config::ExpertGateConfig(), .residual = true}),
            "");
  EXPECT_THAT(Take(kQwen, {.residual = true}),
              HasSubstr("moe.use_residual: all tokens go through an expert of qwen2_moe already "
                        "(shared_expert): leave the key out, or take a family without one"));
  EXPECT_THAT(Take(kDeepseek, {.residual = true}), HasSubstr("already (shared_experts)"));
  EXPECT_THAT(Take(kLlama, {.residual = true}), HasSubstr("moe: llama has no experts"));
  auto spec = models::ReadDecoderSpec(ordered_json::parse(kMixtral), "config.json",
                                      models::UnknownModelKeys::kIgnore)
                  .value();
  ASSERT_TRUE(TakeMoeSection({.residual = true}, &spec).ok());
  EXPECT_EQ(spec.shared_expert_width, 20);
}

// TRL 1.16: null takes the coefficient of config.json, and the loss of models that have one.
TEST(TakeBalance, IsTrlsArgument) {
  const auto take = [](const std::string& coefficient, models::DecoderSpec spec) {
    EXPECT_TRUE(TakeBalance(coefficient, &spec).ok()) << coefficient;
    return std::pair(spec.balances_experts, spec.balance_loss_scale);
  };
  const models::DecoderSpec experts{.has_balance_loss = true, .balance_loss_scale = 0.02};
  EXPECT_EQ(take("", experts), std::pair(false, 0.02));
  EXPECT_EQ(take("auto", experts), std::pair(true, 0.02));
  EXPECT_EQ(take("0.5", experts), std::pair(true, 0.5));
  EXPECT_EQ(take("0", experts), std::pair(false, 0.0));
  EXPECT_EQ(take("auto", {.has_balance_loss = true}), std::pair(false, 0.0));
  EXPECT_EQ(take("auto", {}), std::pair(false, 0.0));
  EXPECT_EQ(take("0", {}), std::pair(false, 0.0));
  for (const char* bad : {"0.5", "none", "-1", "nan"}) {
    models::DecoderSpec dense{.model_type = "llama"};
    EXPECT_THAT(TakeBalance(bad, &dense).message(),
                ::testing::HasSubstr("--router_aux_loss_coef: "))
        << bad;
  }
}

}  // namespace
}  // namespace ds::engine
