// What the parts of tensor parallelism have of a decoder: of every weight everything once, heads
// whole, and the keys with the queries that use them.

#include "runtime/plan/model/tensor_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace ds::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

DecoderSpec Llama() {
  DecoderSpec spec;
  spec.vocabulary = 101;
  spec.width = 24;
  spec.layers = 2;
  spec.heads = 6;
  spec.kv_heads = 3;
  spec.head_width = 4;
  spec.mlp_width = 50;
  return spec;
}

TensorPlan Plan(const DecoderSpec& spec, int part, int parts) {
  return TensorPlan::Create(spec, part, parts).value();
}

std::string Why(const DecoderSpec& spec, int parts) {
  return TensorPlan::Create(spec, 0, parts).status().message();
}

TEST(TensorPlan, ShardsFirstProductsByOutputsAndSecondOnesByInputs) {
  const TensorPlan plan = Plan(Llama(), 1, 3);
  const auto slice = [&](const char* name) { return plan.SliceOf(name).value(); };
  const WeightSlice query = slice("model.layers.1.self_attn.q_proj.weight");
  EXPECT_EQ(query.dimension, 0U);
  EXPECT_EQ(query.extent, 24);
  EXPECT_THAT(query.retained, ElementsAre(IndexRange{8, 8}));
  EXPECT_THAT(slice("model.layers.1.self_attn.k_proj.bias").retained,
              ElementsAre(IndexRange{4, 4}));
  const WeightSlice output = slice("model.layers.1.self_attn.o_proj.weight");
  EXPECT_EQ(output.dimension, 1U);
  EXPECT_THAT(output.retained, ElementsAre(IndexRange{8, 8}));
  EXPECT_THAT(slice("model.layers.0.mlp.up_proj.weight").retained, ElementsAre(IndexRange{17, 17}));
  EXPECT_EQ(slice("model.layers.0.mlp.down_proj.weight").dimension, 1U);
  EXPECT_THAT(slice("model.embed_tokens.weight").retained, ElementsAre(IndexRange{34, 34}));
  EXPECT_THAT(slice("lm_head.weight").retained, ElementsAre(IndexRange{34, 34}));
}

TEST(TensorPlan, AdaptersAreShardedLikeTheirWeight) {
  const TensorPlan plan = Plan(Llama(), 1, 2);
  const auto full = plan.SliceOf("model.layers.0.self_attn.q_proj.weight").value();
  const auto wide = plan.SliceOf("model.layers.0.self_attn.q_proj.lora_B.weight").value();
  EXPECT_EQ(wide.dimension, 0U);
  EXPECT_EQ(wide.retained, full.retained);
  EXPECT_FALSE(plan.SliceOf("model.layers.0.self_attn.q_proj.lora_A.weight"));
  EXPECT_EQ(plan.SliceOf("model.layers.0.self_attn.q_proj.lora_magnitude_vector")->retained,
            full.retained);
  const auto narrow = plan.SliceOf("model.layers.0.mlp.down_proj.lora_A.weight").value();
  EXPECT_EQ(narrow.dimension, 1U);
  EXPECT_EQ(narrow.retained, plan.SliceOf("model.layers.0.mlp.down_proj.weight")->retained);
  EXPECT_FALSE(plan.SliceOf("model.layers.0.mlp.down_proj.lora_B.weight"));
}

TEST(TensorPlan, LeavesReplicatedWeightsUnsharded) {
  const TensorPlan plan = Plan(Llama(), 1, 3);
  for (const char* name :
       {"model.norm.weight", "model.layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.q_norm.weight", "model.embed_positions.weight",
        "model.layers.0.self_attn.o_proj.bias", "model.layers.0.mlp.down_proj.bias", "weight"}) {
    EXPECT_FALSE(plan.SliceOf(name)) << name;
  }
  EXPECT_FALSE(Plan(Llama(), 0, 1).SliceOf("lm_head.weight"));
}

TEST(TensorPlan, AWeightStoredInOutIsShardedInItsOtherDimension) {
  DecoderSpec spec = Llama();
  spec.weights_are_in_out = true;
  const TensorPlan plan = Plan(spec, 0, 3);
  EXPECT_EQ(plan.SliceOf("model.layers.0.mlp.up_proj.weight")->dimension, 1U);
  EXPECT_EQ(plan.SliceOf("model.layers.0.mlp.down_proj.weight")->dimension, 0U);
  EXPECT_EQ(plan.SliceOf("model.layers.0.mlp.up_proj.bias")->dimension, 0U);
  EXPECT_EQ(plan.SliceOf("lm_head.weight")->dimension, 0U);
}

TEST(TensorPlan, FusedWeightsAreShardedByHeadsAndHalves) {
  DecoderSpec spec = Llama();
  spec.qkv = QkvLayout::kConcatenated;
  spec.fused_gate_up = true;
  EXPECT_THAT(Plan(spec, 1, 3).SliceOf("model.layers.0.self_attn.qkv_proj.weight")->retained,
              ElementsAre(IndexRange{8, 8}, IndexRange{28, 4}, IndexRange{40, 4}));
  EXPECT_THAT(Plan(spec, 1, 2).SliceOf("model.layers.0.mlp.gate_up_proj.weight")->retained,
              ElementsAre(IndexRange{25, 25}, IndexRange{75, 25}));
  spec.qkv = QkvLayout::kByGroup;
  EXPECT_THAT(Plan(spec, 2, 3).SliceOf("model.layers.0.self_attn.qkv_proj.weight")->retained,
              ElementsAre(IndexRange{32, 16}));
}

TEST(TensorPlan, ShardsHeadsButNotTheirLatentRow) {
  DecoderSpec spec = Llama();
  spec.qkv = QkvLayout::kLatent;
  spec.kv_heads = spec.heads;
  spec.latent_width = 8;
  spec.value_width = 3;
  const TensorPlan plan = Plan(spec, 1, 2);
  const std::string attention = "model.layers.0.self_attn.";
  const std::int64_t wide = spec.head_width - TurnedWidth(spec) + 3;
  EXPECT_THAT(plan.SliceOf(attention + "kv_b_proj.weight")->retained,
              ElementsAre(IndexRange{3 * wide, 3 * wide}));
  EXPECT_THAT(plan.SliceOf(attention + "o_proj.weight")->retained, ElementsAre(IndexRange{9, 9}));
  EXPECT_EQ(plan.SliceOf(attention + "o_proj.weight")->dimension, 1U);
  EXPECT_FALSE(plan.SliceOf(attention + "kv_a_proj_with_mqa.weight"));
  EXPECT_FALSE(plan.SliceOf(attention + "kv_a_layernorm.weight"));
}

// By name of a weight: how often each index of its cut dimension is there, over all parts.
std::map<std::string, std::vector<int>> CountRetained(const DecoderSpec& spec, int parts) {
  std::map<std::string, std::vector<int>> counts;
  for (int part = 0; part < parts; ++part) {
    const TensorPlan plan = Plan(spec, part, parts);
    for (const char* name :
         {"self_attn.q_proj.weight", "self_attn.qkv_proj.bias", "self_attn.k_proj.weight",
          "self_attn.o_proj.weight", "mlp.gate_proj.weight", "mlp.gate_up_proj.weight",
          "mlp.down_proj.weight", "lm_head.weight"}) {
      const auto slice = plan.SliceOf(name);
      if (!slice) continue;
      counts[name].resize(static_cast<std::size_t>(slice->extent));
      for (const IndexRange& range : slice->retained) {
        for (std::int64_t i = 0; i < range.count; ++i) {
          ++counts[name].at(static_cast<std::size_t>(range.first + i));
        }
      }
    }
  }
  return counts;
}

TEST(TensorPlan, ThePartsHaveEverythingOnceHoweverUneven) {
  for (const QkvLayout layout :
       {QkvLayout::kApart, QkvLayout::kConcatenated, QkvLayout::kByGroup}) {
    for (const bool fused : {false, true}) {
      for (int parts = 2; parts <= 5; ++parts) {
        DecoderSpec spec = Llama();
        spec.heads = 10;
        spec.kv_heads = 5;
        spec.qkv = layout;
        spec.fused_gate_up = fused;
        const auto counts = CountRetained(spec, parts);
        EXPECT_GE(counts.size(), 5U);
        for (const auto& [name, times] : counts) {
          EXPECT_THAT(times, ::testing::Each(1)) << name << " in " << parts;
        }
      }
    }
  }
}

TEST(TensorPlan, MorePartsThanHeadsOfTheKeysCopyThem) {
  DecoderSpec spec = Llama();
  spec.heads = 12;
  for (int part = 0; part < 6; ++part) {
    const TensorPlan plan = Plan(spec, part, 6);
    EXPECT_EQ(plan.slice().heads, 2);
    EXPECT_EQ(plan.slice().kv_heads, 3);
    EXPECT_EQ(plan.copied_key_head(), part / 2);  // whose four queries two parts share
    EXPECT_FALSE(plan.SliceOf("model.layers.0.self_attn.k_proj.weight"));
  }
  EXPECT_FALSE(Plan(spec, 0, 3).copied_key_head());
}

TEST(TensorPlan, TheSliceIsADecoderOfItsOwn) {
  const TensorPlan plan = Plan(Llama(), 0, 2);
  EXPECT_EQ(plan.slice().kv_heads, 2);  // of three
  EXPECT_EQ(plan.slice().heads, 4);
  EXPECT_EQ(plan.slice().mlp_width, 25);
  EXPECT_EQ(plan.slice().vocabulary, 51);
  EXPECT_EQ(plan.slice().width, 24);
  EXPECT_EQ(Plan(Llama(), 1, 2).first_head(), 4);
}

TEST(TensorPlan, RefusesImpossibleShardCountsWithAlternatives) {
  EXPECT_THAT(Why(Llama(), 5), HasSubstr("into 5 parts: it has 6 heads of the queries and 3 heads "
                                         "of the keys; it can into 3 or 6"));
  EXPECT_THAT(Why(Llama(), 7), HasSubstr("it can into 6"));
  DecoderSpec fused = Llama();
  fused.qkv = QkvLayout::kConcatenated;
  EXPECT_THAT(Why(fused, 6), HasSubstr("in one weight with the queries; it can into 3"));
  DecoderSpec narrow = Llama();
  narrow.mlp_width = 2;
  EXPECT_THAT(Why(narrow, 3), HasSubstr("feed-forward width is 2; it can into 2"));
  DecoderSpec normed = Llama();
  normed.query_key_norm = QueryKeyNorm::kFullWidth;
  EXPECT_THAT(Why(normed, 2),
              HasSubstr("span all heads, which are not built in parts; it cannot be sharded"));
  DecoderSpec latent = Llama();
  latent.qkv = QkvLayout::kLatent;
  EXPECT_THAT(Why(latent, 4), HasSubstr("3 heads of the keys, widened from one row; it can into"));
  DecoderSpec experts = Llama();
  experts.experts = 8;
  experts.expert_width = 2;
  EXPECT_THAT(Why(experts, 3), HasSubstr("feed-forward width is 2; it can into 2"));
}

}  // namespace
}  // namespace ds::models
