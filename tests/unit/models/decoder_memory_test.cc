// The sizes of blocks against transformers' counts, and a layer's bytes against sums made by hand.
// That blocks really keep so much is tested in tests/ranks/activation_memory_test.cc.

#include "runtime/plan/memory/decoder_memory.h"
#include "runtime/plan/memory/expert_bytes.h"
#include "runtime/plan/memory/known_memory.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/plan/memory/block_sizes.h"
#include "runtime/plan/memory/product_scratch.h"
#include "runtime/plan/model/count_parameters.h"
#include "runtime/plan/model/families.h"
#include "tests/places.h"

namespace ds::models {
namespace {

using config::RecomputeChoice;

const DecoderSpec kLlama{.vocabulary = 1000,
                         .width = 64,
                         .layers = 3,
                         .heads = 4,
                         .kv_heads = 2,
                         .head_width = 16,
                         .mlp_width = 96};

std::int64_t SumOfSizes(const DecoderSpec& shape) {
  std::int64_t sum = 0;
  for (const BlockSizes& block : ListBlockSizes(shape)) {
    for (const ParameterSize& parameter : block.parameters) sum += parameter.numel();
  }
  return sum;
}

TEST(DecoderMemoryTest, BlocksHaveTheParametersThatTransformersBuilds) {
  std::ifstream file(DS_SOURCE_DIR "/tests/unit/cli/goldens/model_sizes.json");
  int compared = 0;
  for (const auto& row : nlohmann::ordered_json::parse(file)) {
    const auto spec = ReadDecoderSpec(row[0], "", UnknownModelKeys::kIgnore);
    if (!spec.ok() || spec->experts > 0) continue;
    EXPECT_EQ(SumOfSizes(*spec), row[1]) << row[0];
    ++compared;
  }
  EXPECT_GE(compared, 7);
}

TEST(DecoderMemoryTest, LatentRowsKeepTheInputsOfHeads) {
  DecoderSpec spec = kLlama;
  spec.qkv = QkvLayout::kLatent;
  spec.head_width = 24;
  spec.rope.rotated_share = 8.0 / 24;
  spec.value_width = 16;
  spec.latent_width = 10;
  const LatentValues values = CountLatentValues(spec);
  EXPECT_EQ(values.heads, 4 * 24);
  EXPECT_EQ(values.wide, 4 * (16 + 16)) << "a key's part that is not turned, and a value";
  EXPECT_EQ(values.mixed, 4 * 16);
  EXPECT_EQ(values.narrow, 2 * 10) << "the norm's input and output";
  EXPECT_EQ(values.SavedByHeads(/*recomputes=*/false), 4 * 96 + 64) << "values are padded";
  EXPECT_EQ(values.SavedByHeads(/*recomputes=*/true), 2 * 96 + 128 + 64);
  spec.query_latent_width = 12;
  EXPECT_EQ(CountLatentValues(spec).narrow, 2 * (10 + 12));
  spec.value_width = 24;
  EXPECT_FALSE(CountLatentValues(spec).pads());
}

TEST(DecoderMemoryTest, NamesUnknownMemoryOfAModel) {
  EXPECT_TRUE(CheckMemoryIsKnown(kLlama).ok());
  DecoderSpec spec = kLlama;
  spec.experts = 8;
  EXPECT_TRUE(CheckMemoryIsKnown(spec).ok());
  spec.model_type = "gemma2";
  spec.logit_soft_cap = 30.0;
  EXPECT_EQ(CheckMemoryIsKnown(spec).message(),
            "the memory of a model of type 'gemma2' is not known: it has soft caps");
}

constexpr MicroBatch kBatch{.samples = 2, .seq_len = 8};

DecoderSpec WithExperts(std::int64_t experts, std::int64_t of_a_token) {
  DecoderSpec spec = kLlama;
  spec.experts = experts;
  spec.experts_per_token = of_a_token;
  return spec;
}

TEST(DecoderMemoryTest, NoMoreTokensComeThanThereAreTimesTheExpertsOfARank) {
  EXPECT_EQ(MostExpertLoad(WithExperts(8, 2), 1), 1.0);
  EXPECT_EQ(MostExpertLoad(WithExperts(8, 2), 2), 2.0);
  EXPECT_EQ(MostExpertLoad(WithExperts(8, 2), 4), 4.0);
  EXPECT_EQ(MostExpertLoad(WithExperts(8, 2), 8), 4.0);  // the second way is to another rank
  EXPECT_EQ(MostExpertLoad(WithExperts(8, 6), 4), 4.0 * 2 / 6);
  EXPECT_EQ(MostExpertLoad(kLlama, 4), 1.0);
}

TEST(DecoderMemoryTest, ExpertsKeepTheRowsThatCome) {
  const DecoderSpec spec = WithExperts(8, 2);
  MicroBatch batch = kBatch;
  const ExpertBytes full = CountExpertBytes(spec, batch);
  batch.expert_load = 2.0;
  EXPECT_EQ(CountExpertBytes(spec, batch).saved, full.saved) << "all have come to this rank anyway";
  batch.expert_ranks = 4;
  const ExpertBytes twice = CountExpertBytes(spec, batch);
  batch.expert_load = 1.0;
  const ExpertBytes even = CountExpertBytes(spec, batch);
  const std::int64_t rows = 2 * 16;  // two of each token
  EXPECT_EQ(twice.saved - even.saved, rows * ((64 + 3 * WidthOfExpert(spec)) * 4 + 2 * 8));
  EXPECT_EQ(twice.delayed, 2 * even.delayed);
  EXPECT_EQ(even.temporaries, full.temporaries);
  EXPECT_EQ(twice.temporaries - even.temporaries, rows * 2 * 64 * 4);
  batch.layer_loads = {1.0, 2.0, 1.0};
  const auto blocks = ListBlockBytes(spec, batch, {});
  EXPECT_EQ(blocks[2].saved - blocks[1].saved, twice.saved - even.saved);
  EXPECT_EQ(blocks[3].saved, blocks[1].saved);
}

TEST(DecoderMemoryTest, WithoutASharedExpertNothingIsKeptForItsGate) {
  DecoderSpec gated = WithExperts(8, 2), added = gated;
  added.shared_expert_mix = SharedExpertMix::kAdded;
  EXPECT_EQ(CountExpertBytes(gated, kBatch).saved, CountExpertBytes(added, kBatch).saved);
}

// One more expert in each layer, and a product of two results with its bias.
TEST(DecoderMemoryTest, AResidualMlpHasTheParametersOfAnExpert) {
  const DecoderSpec plain = WithExperts(8, 2);
  DecoderSpec residual = plain;
  AddResidualMlp(&residual);
  EXPECT_EQ(SumOfSizes(residual) - SumOfSizes(plain), 3 * (3 * 64 * 96 + 2 * 64 + 2));
  EXPECT_EQ(CountParameters(residual)->all, SumOfSizes(residual));
  EXPECT_EQ(CountParameters(residual)->largest_module, CountParameters(plain)->largest_module);
  // By token: the MLP's two widened rows and their product, its result and that of the experts, and
  // two weights.
  const ExpertBytes more = CountExpertBytes(residual, kBatch);
  EXPECT_EQ(more.saved - CountExpertBytes(plain, kBatch).saved, 16 * 4 * (3 * 96 + 2 * 64 + 2));
  for (const BlockSizes& block : ListBlockSizes(residual)) {
    for (const ParameterSize& each : block.parameters) {
      const bool is_residual = each.name.find("residual_mlp") != std::string::npos ||
                               each.name.find("coefficient") != std::string::npos;
      EXPECT_FALSE(is_residual && (each.is_expert || each.expert >= 0)) << each.name;
    }
  }
}

TEST(DecoderMemoryTest, ALayerKeepsTheInputsOfItsOperations) {
  const auto blocks = ListBlockBytes(kLlama, kBatch, {});
  ASSERT_EQ(blocks.size(), 5U);
  // By token: the input and output of two norms with a number each; queries and what is mixed, keys
  // and values, the logarithm of each head's sum; gate, up and their product.
  constexpr std::int64_t kValues = 4 * 64 + 2 * 64 + 2 * 32 + 3 * 96, kNumbers = 2 + 4;
  EXPECT_EQ(blocks[1].saved, 16 * 4 * (kValues + kNumbers));
  EXPECT_EQ(blocks[2].saved, blocks[1].saved);
  MicroBatch narrow = kBatch;
  narrow.type = config::DataType::kBf16;
  EXPECT_EQ(ListBlockBytes(kLlama, narrow, {})[1].saved, 16 * (2 * kValues + 4 * kNumbers));
}

TEST(DecoderMemoryTest, RecomputedLayersKeepTheirInputAndComeOneAtATime) {
  const RecomputeChoice full{.kind = RecomputeChoice::Kind::kBlocks};
  const auto plain = ListBlockBytes(kLlama, kBatch, {});
  const auto blocks = ListBlockBytes(kLlama, kBatch, full);
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(blocks[i].saved, 16 * 64 * 4);
    EXPECT_GE(blocks[i].backward, plain[i].backward);
  }
  EXPECT_EQ(blocks.back().saved, plain.back().saved) << "the last block is never recomputed";
  const auto every =
      ListBlockBytes(kLlama, kBatch, {.kind = RecomputeChoice::Kind::kBlocks, .every = 2});
  EXPECT_EQ(every[1].saved, blocks[1].saved);
  EXPECT_EQ(every[2].saved, plain[2].saved);
}

TEST(DecoderMemoryTest, TheHeadHasAChunkOfLogitsAndTheMatrixsGradient) {
  const BlockBytes head = ListBlockBytes(kLlama, kBatch, {}).back();
  constexpr std::int64_t kHidden = 16 * 64 * 4, kMatrix = 1000 * 64 * 4, kLogits = 16 * 1000 * 4;
  EXPECT_EQ(head.saved, 2 * kHidden + 16 * 4 + kMatrix);
  EXPECT_EQ(head.forward, 3 * kHidden + 2 * 16 * 4 + kMatrix + kLogits + kProductScratch);
  MicroBatch long_batch = kBatch;
  long_batch.seq_len = 1 << 20;
  const std::int64_t tokens = long_batch.tokens();
  EXPECT_LE(ListBlockBytes(kLlama, long_batch, {}).back().forward,
            tokens * (3 * 64 * 4 + 8) + kMatrix + (64 << 20) + kProductScratch)
      << "never all logits";
}

// LibTorch's softmax takes fp16 as it is, and copies what it does not.
TEST(DecoderMemoryTest, OnAGpuTheHeadHasTheSoftmaxAndItsInput) {
  MicroBatch batch = kBatch;
  batch.seq_len = 1 << 20;  // several chunks
  const auto over_cpu = [&](std::int64_t vocabulary, config::DataType type) {
    DecoderSpec spec = kLlama;
    spec.vocabulary = vocabulary;
    batch.type = type;
    batch.on_gpu = true;
    const std::int64_t on_gpu = ListBlockBytes(spec, batch, {}).back().forward - kDeviceScratch;
    batch.on_gpu = false;
    return on_gpu - (ListBlockBytes(spec, batch, {}).back().forward - kProductScratch);
  };
  constexpr std::int64_t kChunk = 64 << 20;
  using config::DataType;
  const std::int64_t rows = kChunk / (1001 * 2), wide_rows = kChunk / (1001 * 4);
  const std::int64_t narrow_matrix = 1001 * 64 * 2;  // rounded beside no softmax
  EXPECT_EQ(over_cpu(1001, DataType::kBf16), rows * (2 * 1001 * 4 + 7 * 2) - narrow_matrix);
  EXPECT_EQ(over_cpu(1001, DataType::kFp16), rows * (1001 * 6 + 7 * 2) - narrow_matrix);
  EXPECT_EQ(over_cpu(1001, DataType::kFp32), wide_rows * (2 * 1001 * 4 + 7 * 4));
  EXPECT_EQ(over_cpu(1000, DataType::kFp32), kChunk / 4000 * 4000) << "rows follow each other";
}

TEST(ProductScratchTest, HasATileInFp32OfEach16BitMatrix) {
  MicroBatch batch = kBatch;
  EXPECT_EQ(CountWidenedTiles(batch, 64, 1000), 0);
  batch.multiplied_in_fp32 = true;
  EXPECT_EQ(CountWidenedTiles(batch, 64, 1000), 4 * (16 * 64 + 64 * 1000 + 16 * 1000));
  batch.seq_len = 1 << 20;
  EXPECT_EQ(CountWidenedTiles(batch, 4096, 1 << 17), 48 << 20);
  batch.on_gpu = true;
  EXPECT_EQ(CountWidenedTiles(batch, 64, 1000), 0);
}

// It has no product of its gradient in 16 bits, and no buffer of oneDNN.
TEST(DecoderMemoryTest, TheHeadMultipliesByTilesInPlaceOfACopy) {
  MicroBatch batch = kBatch;
  batch.type = config::DataType::kBf16;
  const std::int64_t plain = ListBlockBytes(kLlama, batch, {}).back().forward;
  batch.multiplied_in_fp32 = true;
  EXPECT_EQ(ListBlockBytes(kLlama, batch, {}).back().forward,
            plain - kProductScratch - 1000 * 64 * 2 + CountWidenedTiles(batch, 64, 1000));
}

TEST(ProductScratchTest, Fp32IsNotConverted) {
  EXPECT_FALSE(IsMultipliedInFp32(config::DataType::kFp32));
}

TEST(DecoderMemoryTest, TilesOfTheMlpKeepNothingOfTheirOwn) {
  MicroBatch tiled = kBatch;
  tiled.mlp_tiles = 4;
  const auto plain = ListBlockBytes(kLlama, kBatch, {}), blocks = ListBlockBytes(kLlama, tiled, {});
  EXPECT_EQ(blocks[1].saved, plain[1].saved - 3 * 16 * 96 * 4);
  EXPECT_LT(blocks[1].forward, plain[1].forward);
  EXPECT_LT(blocks[1].backward, plain[1].backward);
  EXPECT_EQ(blocks.back().forward, plain.back().forward);
}

TEST(DecoderMemoryTest, WindowsDistancesAndDocumentsAddNothing) {
  const BlockBytes plain = ListBlockBytes(kLlama, kBatch, {})[1];
  MicroBatch packed = kBatch;
  packed.documents = true;
  DecoderSpec spec = kLlama;
  spec.window = 4;
  EXPECT_EQ(ListBlockBytes(spec, packed, {})[1].saved, plain.saved);
  EXPECT_EQ(ListBlockBytes(spec, packed, {})[1].backward, plain.backward);
}

// Dropout of weights keeps as much as attention without.
TEST(DecoderMemoryTest, DroppedWeightsAreComputedAgain) {
  const std::int64_t plain = ListBlockBytes(kLlama, kBatch, {})[1].saved;
  DecoderSpec spec = kLlama;
  spec.attention_dropout = 0.1;
  EXPECT_EQ(ListBlockBytes(spec, kBatch, {})[1].saved, plain);
}

TEST(DecoderMemoryTest, SumsThatLeave64BitsAreRefusedWithTheFigure) {
  EXPECT_TRUE(CheckCountable(kLlama, kBatch).ok());
  constexpr std::int64_t kMost = 1 << 24;
  EXPECT_EQ(CheckCountable(kLlama, {.samples = kMost, .seq_len = kMost}).message(),
            "a micro-batch of 16777216 x 16777216 tokens makes more bytes of activations than can "
            "be counted");
  DecoderSpec spec = kLlama;
  spec.vocabulary = std::int64_t{1} << 60;
  EXPECT_FALSE(CheckCountable(spec, kBatch).ok());
}

TEST(DecoderMemoryTest, DropoutKeepsItsFactors) {
  DecoderSpec shape = kLlama;
  const std::int64_t plain = ListBlockBytes(shape, kBatch, {})[1].saved;
  shape.residual_dropout = 0.1;
  EXPECT_EQ(ListBlockBytes(shape, kBatch, {})[1].saved, plain + 2 * 16 * 64 * 4);
  shape.residual_dropout = 0.0;
  shape.embedding_dropout = 0.1;
  EXPECT_EQ(ListBlockBytes(shape, kBatch, {})[0].saved, 16 * 64 * 4);
}

}  // namespace
}  // namespace ds::models
