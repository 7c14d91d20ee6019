// The sizes of blocks against transformers' counts, and a layer's bytes against sums made by hand.
// That blocks really keep so much is tested in tests/ranks/activation_memory_test.cc.

#include "runtime/models/memory/decoder_memory.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "runtime/models/memory/read_decoder_shape.h"
#include "tests/places.h"

namespace ds::models {
namespace {

using config::RecomputeChoice;

std::int64_t CountParameters(const DecoderShape& shape) {
  std::int64_t sum = 0;
  for (const BlockSizes& block : ListBlockSizes(shape)) {
    sum = std::accumulate(block.numels.begin(), block.numels.end(), sum);
  }
  return sum;
}

TEST(DecoderMemoryTest, BlocksHaveTheParametersThatTransformersBuilds) {
  std::ifstream file(DS_SOURCE_DIR "/tests/unit/cli/goldens/model_sizes.json");
  int compared = 0;
  for (const auto& row : nlohmann::ordered_json::parse(file)) {
    const StatusOr<DecoderShape> shape = ReadDecoderShape(row[0]);
    if (!shape.ok()) continue;
    EXPECT_EQ(CountParameters(*shape), row[1]) << row[0];
    ++compared;
  }
  EXPECT_GE(compared, 7);
}

TEST(DecoderMemoryTest, WhatIsNoModelIsRefusedByName) {
  EXPECT_NE(ReadDecoderShape({{"model_type", "gpt2"}, {"n_embd", "wide"}})
                .status()
                .message()
                .find("'n_embd' must be a whole number"),
            std::string::npos);
  EXPECT_FALSE(ReadDecoderShape({{"model_type", "bert"}}).ok());
  EXPECT_FALSE(ReadDecoderShape(nlohmann::ordered_json::array()).ok());
}

constexpr DecoderShape kLlama{.vocabulary = 1000,
                              .width = 64,
                              .layers = 3,
                              .heads = 4,
                              .kv_heads = 2,
                              .head_width = 16,
                              .mlp_width = 96,
                              .gated_mlp = true};
constexpr MicroBatch kBatch{.samples = 2, .seq_len = 8};

TEST(DecoderMemoryTest, ALayerKeepsWhatItsOperationsRead) {
  const auto blocks = ListBlockBytes(kLlama, kBatch, {});
  ASSERT_EQ(blocks.size(), 5U);
  // By token: the input and output of two norms with a number each; queries and what is mixed, keys
  // and values, the logarithm of each head's sum; gate, up and their product.
  constexpr std::int64_t kValues = 4 * 64 + 2 * 64 + 2 * 32 + 3 * 96, kNumbers = 2 + 4;
  EXPECT_EQ(blocks[1].kept, 16 * 4 * (kValues + kNumbers));
  EXPECT_EQ(blocks[2].kept, blocks[1].kept);
  MicroBatch narrow = kBatch;
  narrow.type = config::DataType::kBf16;
  EXPECT_EQ(ListBlockBytes(kLlama, narrow, {})[1].kept, 16 * (2 * kValues + 4 * kNumbers));
}

TEST(DecoderMemoryTest, RecomputedLayersKeepTheirInputAndComeOneAtATime) {
  const RecomputeChoice full{.kind = RecomputeChoice::Kind::kBlocks};
  const auto plain = ListBlockBytes(kLlama, kBatch, {});
  const auto blocks = ListBlockBytes(kLlama, kBatch, full);
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(blocks[i].kept, 16 * 64 * 4);
    EXPECT_GE(blocks[i].backward, plain[i].backward);
  }
  EXPECT_EQ(blocks.back().kept, plain.back().kept) << "the last block is never recomputed";
  const auto every =
      ListBlockBytes(kLlama, kBatch, {.kind = RecomputeChoice::Kind::kBlocks, .every = 2});
  EXPECT_EQ(every[1].kept, blocks[1].kept);
  EXPECT_EQ(every[2].kept, plain[2].kept);
}

TEST(DecoderMemoryTest, TheHeadHasAChunkOfLogitsAndTheMatrixsGradient) {
  const BlockBytes head = ListBlockBytes(kLlama, kBatch, {}).back();
  constexpr std::int64_t kHidden = 16 * 64 * 4, kMatrix = 1000 * 64 * 4, kLogits = 16 * 1000 * 4;
  EXPECT_EQ(head.kept, 2 * kHidden + 16 * 4 + kMatrix);
  EXPECT_EQ(head.forward, 3 * kHidden + 2 * 16 * 4 + kMatrix + kLogits + kProductScratch);
  MicroBatch long_batch = kBatch;
  long_batch.seq_len = 1 << 20;
  const std::int64_t tokens = long_batch.tokens();
  EXPECT_LE(ListBlockBytes(kLlama, long_batch, {}).back().forward,
            tokens * (3 * 64 * 4 + 8) + kMatrix + (64 << 20) + kProductScratch)
      << "never all logits";
}

TEST(DecoderMemoryTest, DropoutKeepsItsFactors) {
  DecoderShape shape = kLlama;
  const std::int64_t plain = ListBlockBytes(shape, kBatch, {})[1].kept;
  shape.residual_dropout = 0.1;
  EXPECT_EQ(ListBlockBytes(shape, kBatch, {})[1].kept, plain + 2 * 16 * 64 * 4);
  shape.residual_dropout = 0.0;
  shape.embedding_dropout = 0.1;
  EXPECT_EQ(ListBlockBytes(shape, kBatch, {})[0].kept, 16 * 64 * 4);
}

}  // namespace
}  // namespace ds::models
