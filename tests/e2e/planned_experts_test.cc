// The memory of models that send tokens through a part of them, which each rank has or ranks have
// between them, and of attention over narrow rows, is what was planned (planned_memory_test.cc).

#include <gtest/gtest.h>

#include <random>

#include "runtime/base/files.h"
#include "tests/e2e/planned_memory.h"

namespace ds::testing {
namespace {

using nlohmann::json;

json Common(int layers) {
  return {{"vocab_size", 3000},          {"hidden_size", 192},
          {"num_hidden_layers", layers}, {"num_attention_heads", 6},
          {"num_key_value_heads", 3},    {"max_position_embeddings", 128},
          {"num_experts_per_tok", 2},    {"tie_word_embeddings", false}};
}

json DeepSeek() {
  json model = Common(/*layers=*/4);
  model.update({{"model_type", "deepseek_v2"},
                {"num_key_value_heads", 6},
                {"intermediate_size", 512},
                {"moe_intermediate_size", 128},
                {"n_routed_experts", 8},
                {"n_shared_experts", 1},
                {"first_k_dense_replace", 1},
                {"kv_lora_rank", 64},
                {"q_lora_rank", nullptr},
                {"qk_rope_head_dim", 16},
                {"qk_nope_head_dim", 32},
                {"v_head_dim", 32},
                {"topk_method", "greedy"},
                {"norm_topk_prob", false},
                {"hidden_act", "silu"}});
  return model;
}

class PlannedExperts : public PlannedMemory {
 protected:
  void SetUp() override {
    PlannedMemory::SetUp();
    json mixtral = Common(/*layers=*/4), shared = mixtral, groups = DeepSeek();
    mixtral.update(
        {{"model_type", "mixtral"}, {"intermediate_size", 384}, {"num_local_experts", 8}});
    shared.update({{"model_type", "qwen2_moe"},
                   {"intermediate_size", 512},
                   {"moe_intermediate_size", 256},
                   {"shared_expert_intermediate_size", 384},
                   {"num_experts", 4},
                   {"decoder_sparse_step", 1},
                   {"norm_topk_prob", false},
                   {"mlp_only_layers", json::array()}});
    groups.update({{"q_lora_rank", 96},
                   {"n_group", 4},
                   {"topk_group", 2},
                   {"topk_method", "group_limited_greedy"}});
    Write("mixtral.json", mixtral);
    Write("qwen2_moe.json", shared);
    Write("deepseek.json", DeepSeek());
    Write("deepseek_groups.json", groups);
  }

  // Of tokens that are as frequent as one another, with routers that hardly learn: experts of all
  // ranks get about as many rows, as a plan takes them to.
  void ExpectPlannedOfEvenTokens(Job job) {
    std::mt19937 draw(5);
    std::string bytes;
    for (int i = 0; i < 200000; ++i) {
      const auto token = static_cast<std::uint16_t>(draw() % 3000);
      bytes.append(reinterpret_cast<const char*>(&token), sizeof token);
    }
    job.tokens = "even.bin";
    ASSERT_TRUE(WriteFileAtomically(PathOf(job.tokens), bytes).ok());
    job.config = {{"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-6}}}}}};
    ExpectPlanned(job);
  }
};

TEST_F(PlannedExperts, AreMeasuredWhereEachRankHasAll) {
  for (const char* model : {"mixtral", "qwen2_moe"}) {
    ExpectPlanned({.stage = 0, .micro_batch = 24, .model = model});
    ExpectPlanned({.stage = 2, .bf16 = true, .micro_batch = 8, .model = model});
    ExpectPlanned({.stage = 3, .micro_batch = 8, .model = model});
    ExpectPlanned({.stage = 3, .micro_batch = 8, .recompute = "full", .model = model});
  }
}

TEST_F(PlannedExperts, AreMeasuredWhereRanksHaveThemBetweenThem) {
  for (const char* model : {"mixtral", "qwen2_moe", "deepseek"}) {
    ExpectPlannedOfEvenTokens({.stage = 0, .micro_batch = 24, .model = model, .expert = 2});
    ExpectPlannedOfEvenTokens(
        {.stage = 1, .bf16 = true, .micro_batch = 8, .model = model, .ranks = 4, .expert = 4});
    ExpectPlannedOfEvenTokens({.stage = 2,
                               .bf16 = true,
                               .micro_batch = 8,
                               .accumulation = 2,
                               .model = model,
                               .ranks = 4,
                               .expert = 2});
    ExpectPlannedOfEvenTokens(
        {.stage = 3, .micro_batch = 8, .model = model, .ranks = 4, .expert = 2});
  }
  ExpectPlannedOfEvenTokens(
      {.stage = 3, .micro_batch = 8, .recompute = "full", .model = "mixtral", .expert = 2});
}

TEST_F(PlannedExperts, AreMeasuredBesideKeysAndValuesOfNarrowRows) {
  for (const char* model : {"deepseek", "deepseek_groups"}) {
    ExpectPlanned({.stage = 0, .micro_batch = 16, .model = model});
    ExpectPlanned({.stage = 2, .bf16 = true, .micro_batch = 16, .model = model});
    ExpectPlanned({.stage = 3, .micro_batch = 16, .recompute = "full", .model = model});
    ExpectPlanned(
        {.stage = 3, .bf16 = true, .micro_batch = 8, .recompute = "attention", .model = model});
  }
}

}  // namespace
}  // namespace ds::testing
