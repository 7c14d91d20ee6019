#include "runtime/models/kernels/dropout.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/models/decoder/build_model.h"
#include "runtime/models/decoder/decoder_embedding.h"
#include "runtime/models/weights/model_config.h"

namespace ds::models {
namespace {

constexpr DropoutDraw kDraw{.probability = 0.3,
                            .origin = {.key = 77, .first_sample = 5, .block = 2},
                            .site = DropoutSite::kAttention};

TEST(Dropout, EveryShardDrawsTheMaskOfTheFullTensor) {
  const at::Tensor full = DropoutFactors({4, 6, 8, 10}, kDraw, at::kFloat);
  for (const auto& [sample, head, position] : {std::tuple{0, 0, 0}, {1, 2, 3}, {3, 4, 7}}) {
    DropoutDraw part = kDraw;
    part.origin.first_sample += sample;
    part.origin.first_head += head;
    part.origin.first_position += position;
    const at::Tensor expected = full.narrow(0, sample, 1).narrow(1, head, 2).narrow(2, position, 1);
    EXPECT_TRUE(at::equal(DropoutFactors({1, 2, 1, 10}, part, at::kFloat), expected));
  }
}

TEST(Dropout, OtherPositionsDrawOtherMasks) {
  const at::Tensor first = DropoutFactors({2, 3, 40}, kDraw, at::kFloat);
  EXPECT_TRUE(at::equal(first, DropoutFactors({2, 3, 40}, kDraw, at::kFloat)));
  DropoutDraw other = kDraw;
  other.origin.key = 78;  // the next step's, say
  EXPECT_FALSE(at::equal(first, DropoutFactors({2, 3, 40}, other, at::kFloat)));
  other = kDraw;
  other.origin.block = 3;
  EXPECT_FALSE(at::equal(first, DropoutFactors({2, 3, 40}, other, at::kFloat)));
  other = kDraw;
  other.site = DropoutSite::kMlpOutput;
  EXPECT_FALSE(at::equal(first, DropoutFactors({2, 3, 40}, other, at::kFloat)));
}

TEST(Dropout, TheOperatorsMatchTheLoop) {
  DropoutDraw draw = kDraw;
  draw.origin.first_position = 4000000000;
  draw.origin.key = 0xfedcba9876543210;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    EXPECT_TRUE(at::equal(DropoutFactors({3, 5, 7, 11}, draw, dtype),
                          DropoutFactorsByOperators({3, 5, 7, 11}, draw, dtype)));
    EXPECT_TRUE(at::equal(DropoutFactors({3, 7, 12}, draw, dtype),
                          DropoutFactorsByOperators({3, 7, 12}, draw, dtype)));
  }
}

TEST(Dropout, DropsAsOftenAsAskedAndScalesTheRest) {
  const at::Tensor factors = DropoutFactors({64, 64, 256}, kDraw, at::kFloat);
  const double n = static_cast<double>(factors.numel());
  const double dropped = factors.eq(0).sum().item<double>() / n;
  EXPECT_NEAR(dropped, 0.3, 4.0 * std::sqrt(0.3 * 0.7 / n));
  EXPECT_TRUE(factors.ne(0).logical_and(factors.ne(1.0F / 0.7F)).sum().item<std::int64_t>() == 0);
  // No sample, position or element is favoured.
  for (const int kept_dimension : {0, 1, 2}) {
    const at::Tensor lines = factors.transpose(0, kept_dimension).flatten(1).ne(0).to(at::kDouble);
    const double of_line = static_cast<double>(lines.size(1));
    EXPECT_LT((lines.mean(1) - 0.7).abs().max().item<double>(),
              5.0 * std::sqrt(0.3 * 0.7 / of_line));
  }
}

TEST(Dropout, ExtremesDropNothingOrEverything) {
  const at::Tensor x = at::ones({2, 3, 4});
  EXPECT_TRUE(Dropout(x, {.probability = 0.0}).is_same(x));
  EXPECT_EQ(Dropout(x, {.probability = 1.0}).abs().max().item<double>(), 0.0);
}

TEST(UniformNoise, FillsItsRangeEvenlyInAnyPartition) {
  const DropoutDraw draw{.origin = {.key = 7}, .site = DropoutSite::kEmbeddingNoise};
  const at::Tensor noise = UniformNoise({4, 32, 250}, draw, 0.2, at::kFloat);
  EXPECT_TRUE(at::equal(noise, UniformNoiseByOperators({4, 32, 250}, draw, 0.2, at::kFloat)));
  const double n = static_cast<double>(noise.numel());
  EXPECT_LT(noise.abs().max().item<double>(), 0.2 + 1e-8);
  EXPECT_GT(noise.abs().max().item<double>(), 0.1999);
  EXPECT_NEAR(noise.mean().item<double>(), 0.0, 4.0 * 0.2 / std::sqrt(3.0 * n));
  EXPECT_NEAR(noise.square().mean().item<double>(), 0.04 / 3.0, 1e-4);
  DropoutDraw after = draw;
  after.origin.first_sample = 2;
  after.origin.first_position = 16;
  EXPECT_TRUE(at::equal(UniformNoise({2, 16, 250}, after, 0.2, at::kFloat),
                        noise.narrow(0, 2, 2).narrow(1, 16, 16)));
}

TEST(UniformNoise, EmbeddingsGetItWhileTraining) {
  const auto config = ParseModelConfig(
      R"({"model_type": "gpt2", "vocab_size": 50, "n_positions": 8, "n_embd": 16, "n_layer": 1,
          "n_head": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})",
      "config.json");
  const auto model = BuildModel(config.value(), at::kFloat);
  AllocateParameters(model->block(0));
  model->block(0).Initialize(1);
  AddEmbeddingNoise(*model, 5.0);
  const auto embed = [&](bool trains, std::int64_t longest_sample = 0) {
    model->train(trains);
    return model->block(0)
        .forward({.batch = {{"tokens", at::ones({3, 8}, at::kLong)}},
                  .longest_sample = longest_sample,
                  .random = {.key = 3}})
        .hidden;
  };
  // transformers: alpha / sqrt(tokens * width), uniformly.
  const double range = 5.0 / std::sqrt(8.0 * 16.0);
  const at::Tensor noise = embed(true) - embed(false);
  EXPECT_LE(noise.abs().max().item<double>(), range);
  EXPECT_NEAR(noise.square().mean().item<double>(), range * range / 3.0, 0.15 * range * range);
  EXPECT_TRUE(at::equal(embed(false), embed(false)));
  // Padding does not make the noise smaller.
  EXPECT_TRUE(at::allclose(embed(true, 2) - embed(false), 2.0 * noise, 1e-4, 1e-6));
}

// What recomputing activations relies on.
TEST(Dropout, ABlockThatRunsAgainDrawsTheSame) {
  const auto config = ParseModelConfig(
      R"({"model_type": "gpt2", "vocab_size": 50, "n_positions": 8, "n_embd": 16, "n_layer": 2,
          "n_head": 2, "resid_pdrop": 0.2, "embd_pdrop": 0.2, "attn_pdrop": 0.2})",
      "config.json");
  const auto model = BuildModel(config.value(), at::kFloat);
  for (const auto& block : model->blocks()) {
    AllocateParameters(*block);
    block->Initialize(1);
  }
  model->train(true);
  const auto run = [&](std::uint64_t key) {
    const at::Tensor tokens = at::ones({3, 8}, at::kLong);
    return RunBlocks(*model,
                     {.batch = {{"tokens", tokens}, {"labels", tokens}}, .random = {.key = key}})
        .loss;
  };
  const double first = run(1).item<double>();
  EXPECT_EQ(run(1).item<double>(), first);
  EXPECT_NE(run(2).item<double>(), first);
  model->train(false);
  EXPECT_EQ(run(1).item<double>(), run(2).item<double>());
}

}  // namespace
}  // namespace ds::models
