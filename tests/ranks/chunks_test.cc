// Decoders whose attention takes a chunk of a sample at a time train to what they train to with
// whole samples: on one rank and on sequence ranks, with every ZeRO stage, wherever what waits
// does. Blocks of attention are put together in another order, so numbers are compared.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ranks/decoder_run.h"
#include "tests/ranks/latent_decoder.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

// Samples have twelve tokens: the last chunk is shorter.
constexpr std::int64_t kUneven = 5, kEven = 4;

constexpr char kCappedDecoder[] =
    R"({"model_type":"gemma2","vocab_size":48,"hidden_size":24,"intermediate_size":42,
        "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":6,
        "max_position_embeddings":16,"sliding_window":5,"query_pre_attn_scalar":6,
        "attn_logit_softcapping":2.0,"final_logit_softcapping":3.0,
        "hidden_activation":"gelu_pytorch_tanh"})";

TEST(ChunkedTraining, OneRankMatchesFullSamples) {
  for (const char* model : {kLlamaDecoder, kDroppingDecoder, kWindowedDecoder, kDistancesDecoder,
                            kMixtralDecoder, kCappedDecoder}) {
    DecoderRun run{.model = model};
    // Adam's first updates are the signs of gradients, also of those that are rounding alone: of an
    // expert with few rows, or behind capped scores.
    const bool rounds = run.model == kMixtralDecoder || run.model == kCappedDecoder;
    if (rounds) run.optimizer = config::SgdConfig{};
    const auto full = RunDecoder(run, 1, kTrainedSteps);
    for (const std::int64_t sp_chunk : {std::int64_t{1}, kEven, kUneven, std::int64_t{11}}) {
      SCOPED_TRACE(fmt::format("{} portion {}", model, sp_chunk));
      run.sp_chunk = sp_chunk;
      const auto ours = RunDecoder(run, 1, kTrainedSteps);
      ExpectSameSteps(full.steps, ours.steps);
      ExpectSameParameters(full, ours);
    }
  }
}

TEST(ChunkedTraining, AsLongAsTheSampleMatchItBitForBit) {
  const auto full = RunDecoder({.model = kLlamaDecoder}, 1, kTrainedSteps).steps;
  const auto ours = RunDecoder({.model = kLlamaDecoder, .sp_chunk = 12}, 1, kTrainedSteps).steps;
  ExpectSameSteps(full, ours, {.loss = 0.0, .norm = 0.0});
}

TEST(ChunkedTraining, EveryStageMatchesOneRank) {
  for (const char* model : {kDroppingDecoder, kLlamaDecoder}) {
    const auto alone = RunDecoder({.model = model}, 1, kTrainedSteps).steps;
    for (int stage = 0; stage <= 3; ++stage) {
      for (const std::int64_t accumulation : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} stage {} accumulation {}", model, stage, accumulation));
        DecoderRun run{.model = model, .stage = stage, .accumulation = accumulation};
        run.sp_chunk = kEven;
        ExpectSameSteps(alone, RunDecoder(run, /*ranks=*/2, kTrainedSteps).steps);
        run.sequence = 2;
        ExpectSameSteps(alone, RunDecoder(run, /*ranks=*/4, kTrainedSteps).steps);
      }
    }
  }
}

TEST(ChunkedTraining, EveryStageTrainsInBf16) {
  const auto alone = RunDecoder({.model = kLlamaDecoder, .bf16 = true}, 1, kTrainedSteps).steps;
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    const DecoderRun run{
        .model = kLlamaDecoder, .sequence = 2, .stage = stage, .bf16 = true, .sp_chunk = kEven};
    ExpectSameSteps(alone, RunDecoder(run, 4, kTrainedSteps).steps, {.loss = 2e-2, .norm = 0.08});
  }
}

// Ranks have a token or two of each chunk; some have the same heads of the keys.
TEST(ChunkedTraining, RanksHaveARangeOfEachChunk) {
  const std::pair<const char*, int> splits[] = {{kLlamaDecoder, 4},
                                                {kWindowedDecoder, 4},
                                                {kDistancesDecoder, 3},
                                                {kDroppingDecoder, 2},
                                                {kLatentDecoder, 2}};
  for (const auto& [model, sequence] : splits) {
    SCOPED_TRACE(fmt::format("{} on {}", model, sequence));
    const auto alone = RunDecoder({.model = model}, 1, kTrainedSteps).steps;
    for (const std::int64_t sp_chunk : {sequence, 2 * sequence}) {
      const DecoderRun run{.model = model, .sequence = sequence, .stage = 3, .sp_chunk = sp_chunk};
      ExpectSameSteps(alone, RunDecoder(run, sequence, kTrainedSteps).steps);
    }
  }
}

// Documents begin at the fifth and the tenth token.
TEST(ChunkedTraining, PackedDocumentsReachOverThem) {
  for (const char* model : {kDroppingDecoder, kLlamaDecoder, kWindowedDecoder}) {
    const auto alone = RunDecoder({.model = model, .packed = true}, 1, kTrainedSteps).steps;
    for (const std::int64_t sp_chunk : {std::int64_t{2}, kEven, std::int64_t{8}}) {
      SCOPED_TRACE(fmt::format("{} portion {}", model, sp_chunk));
      DecoderRun run{.model = model, .packed = true, .sp_chunk = sp_chunk};
      ExpectSameSteps(alone, RunDecoder(run, 1, kTrainedSteps).steps);
      run.sequence = 2;
      ExpectSameSteps(alone, RunDecoder(run, 2, kTrainedSteps).steps);
    }
  }
}

TEST(ChunkedTraining, GoWithTensorParallelismRecomputeAndTiles) {
  using Kind = config::RecomputeChoice::Kind;
  for (const char* model : {kDroppingDecoder, kLlamaDecoder}) {
    const auto alone = RunDecoder({.model = model}, 1, kTrainedSteps).steps;
    for (const Kind kind : {Kind::kNone, Kind::kBlocks, Kind::kAttention}) {
      SCOPED_TRACE(fmt::format("{} recompute {}", model, static_cast<int>(kind)));
      const DecoderRun run{.model = model,
                           .tensor = 2,
                           .sequence = 2,
                           .stage = 2,
                           .recompute = {.kind = kind},
                           .mlp_tiles = 2,
                           .sp_chunk = kEven};
      ExpectSameSteps(alone, RunDecoder(run, 8, kTrainedSteps).steps);
    }
  }
}

TEST(ChunkedTraining, GoThroughStages) {
  const auto alone = RunDecoder({.model = kLlamaDecoder}, 1, kTrainedSteps).steps;
  for (const auto schedule :
       {pipeline::ScheduleKind::kOneForwardOneBackward, pipeline::ScheduleKind::kZeroBubbleH1}) {
    const DecoderRun run{.model = kLlamaDecoder,
                         .pipeline = 2,
                         .schedule = schedule,
                         .stage = 1,
                         .accumulation = 2,
                         .sp_chunk = kUneven};
    ExpectSameSteps(alone, RunDecoder(run, 2, kTrainedSteps).steps);
  }
}

TEST(ChunkedTraining, WaitInFiles) {
  const testing::TemporaryFolder folder;
  for (const char* model : {kDroppingDecoder, kLlamaDecoder}) {
    const auto alone = RunDecoder({.model = model}, 1, kTrainedSteps).steps;
    const DecoderRun here{.model = model, .sequence = 2, .stage = 3, .sp_chunk = kEven};
    const auto on_device = RunDecoder(here, 2, kTrainedSteps).steps;
    ExpectSameSteps(alone, on_device);
    for (const std::string& where : {std::string("cpu"), folder.path().string()}) {
      SCOPED_TRACE(where);
      DecoderRun run = here;
      run.sp_offload = where;
      ExpectSameSteps(on_device, RunDecoder(run, 2, kTrainedSteps).steps,
                      {.loss = 0.0, .norm = 0.0});
    }
  }
}

TEST(ChunkedTraining, OfFrozenPartsTrainTheRest) {
  const DecoderRun adapters{.model = kLlamaDecoder, .lora_rank = 2};
  const DecoderRun no_projections{.model = kLlamaDecoder,
                                  .freeze = {"*q_proj*", "*k_proj*", "*v_proj*", "*embed*"}};
  const DecoderRun no_first{.model = kLlamaDecoder, .freeze = {"*embed*", "*layers.0.*"}};
  for (DecoderRun run : {adapters, no_projections, no_first}) {
    SCOPED_TRACE(run.lora_rank > 0 ? "adapters" : run.freeze.back());
    const auto full = RunDecoder(run, 1, kTrainedSteps).steps;
    run.sp_chunk = kUneven;
    ExpectSameSteps(full, RunDecoder(run, 1, kTrainedSteps).steps);
    run.sp_chunk = kEven;
    run.sequence = 2;
    run.stage = 3;
    ExpectSameSteps(full, RunDecoder(run, 2, kTrainedSteps).steps);
  }
}

TEST(ChunkedTraining, EvaluationCountsTheLabelsOfAll) {
  const auto alone = EvaluateDecoder({.model = kLlamaDecoder}, 1);
  const DecoderRun run{.model = kLlamaDecoder, .sequence = 2, .accumulation = 2, .sp_chunk = kEven};
  const auto split = EvaluateDecoder(run, /*ranks=*/4);
  EXPECT_NEAR(split.loss, alone.loss, 1e-5);
  EXPECT_EQ(split.labels, alone.labels);
  EXPECT_EQ(split.accuracy, alone.accuracy);
}

}  // namespace
}  // namespace ds::tests
