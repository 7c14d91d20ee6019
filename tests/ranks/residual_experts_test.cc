// Decoders with an MLP next to their experts train on any number of ranks to what one rank trains:
// the MLP is cut among tensor ranks as an expert is, and is no rank's own where ranks have experts
// between them. Sums have another order than one rank's, so numbers are compared.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/ranks/decoder_run.h"

namespace ds::tests {
namespace {

// One layer has no experts, and so no MLP next to them.
constexpr char kFewLayersOfExperts[] = R"({"model_type":"qwen3_moe","vocab_size":48,
    "hidden_size":24,"intermediate_size":20,"num_hidden_layers":3,"num_attention_heads":4,
    "num_key_value_heads":2,"head_dim":6,"max_position_embeddings":16,"num_experts":4,
    "num_experts_per_tok":1,"moe_intermediate_size":9,"mlp_only_layers":[1],
    "initializer_range":0.1})";

DecoderRun ResidualRun(const char* model) {
  return {.model = model, .residual = true, .optimizer = config::SgdConfig{.momentum = 0.9}};
}

void ExpectTrainsWhatOneRankTrains(const DecoderOutcome& alone, const DecoderRun& run, int ranks) {
  const DecoderOutcome ours = RunDecoder(run, ranks, kTrainedSteps);
  ExpectSameSteps(alone.steps, ours.steps);
  ExpectSameParameters(alone, ours);
}

TEST(ResidualExperts, TrainEveryPartAndLowerTheLoss) {
  DecoderRun run{.model = kMixtralDecoder, .residual = true};
  const DecoderOutcome first = RunDecoder(run, 1, 1), last = RunDecoder(run, 1, 8);
  EXPECT_LT(last.steps.back().loss, first.steps.front().loss);
  int parts = 0;
  for (const auto& [name, value] : first.parameters) {
    const bool is_part = name.find(".residual_mlp.") != std::string::npos ||
                         name.find(".coefficient.") != std::string::npos;
    if (!is_part) continue;
    EXPECT_FALSE(value.equal(last.parameters.at(name))) << name;
    ++parts;
  }
  EXPECT_EQ(parts, 2 * 5);
}

TEST(ResidualExperts, EveryStageAndExpertRankMatchesOneRank) {
  for (const char* model : {kMixtralDecoder, kFewLayersOfExperts}) {
    const DecoderOutcome alone = RunDecoder(ResidualRun(model), 1, kTrainedSteps);
    for (int stage = 0; stage <= 3; ++stage) {
      for (const int expert : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} stage {} expert {}", model, stage, expert));
        DecoderRun run = ResidualRun(model);
        run.stage = stage;
        run.expert = expert;
        run.accumulation = 2;
        ExpectTrainsWhatOneRankTrains(alone, run, 4);
      }
    }
  }
}

TEST(ResidualExperts, TensorSequenceAndPipelineRanksMatchOneRank) {
  for (const char* model : {kMixtralDecoder, kFewLayersOfExperts}) {
    const DecoderOutcome alone = RunDecoder(ResidualRun(model), 1, kTrainedSteps);
    std::vector<DecoderRun> runs(6, ResidualRun(model));
    runs[0].tensor = 2;
    runs[1].tensor = 2;
    runs[1].expert = 2;
    runs[1].stage = 2;
    runs[2].sequence = 2;
    runs[2].stage = 3;
    runs[3].pipeline = 2;
    runs[3].accumulation = 2;
    runs[4].stage = 3;
    runs[4].mlp_tiles = 3;
    runs[4].recompute = {.kind = config::RecomputeChoice::Kind::kBlocks};
    runs[5].tensor = 2;
    runs[5].pipeline = 2;
    runs[5].stage = 1;
    runs[5].accumulation = 2;
    for (const DecoderRun& run : runs) {
      SCOPED_TRACE(fmt::format("{}: {}", model, &run - runs.data()));
      ExpectTrainsWhatOneRankTrains(alone, run, 4);
    }
  }
}

TEST(ResidualExperts, CheckpointsMoveBetweenAllDegrees) {
  const DecoderRun one = ResidualRun(kMixtralDecoder);
  DecoderRun split = one, sharded = one;
  split.tensor = 2;
  split.expert = 2;
  sharded.pipeline = 2;
  sharded.stage = 3;
  sharded.accumulation = 2;
  const auto expected = GoOnFromCheckpoint(one, 1, one, 1);
  ExpectSameSteps(expected, GoOnFromCheckpoint(one, 1, split, 4));
  ExpectSameSteps(expected, GoOnFromCheckpoint(split, 4, sharded, 4));
  ExpectSameSteps(expected, GoOnFromCheckpoint(sharded, 4, one, 2));
}

// The MLP and the product that weights it have adapters, unlike experts.
TEST(ResidualExperts, AdaptersTrainAsOnOneRank) {
  DecoderRun run = ResidualRun(kMixtralDecoder);
  run.lora_rank = 2;
  const DecoderOutcome alone = RunDecoder(run, 1, kTrainedSteps);
  for (const int tensor : {1, 2}) {
    run.tensor = tensor;
    run.stage = 2;
    ExpectTrainsWhatOneRankTrains(alone, run, 4);
  }
}

}  // namespace
}  // namespace ds::tests
