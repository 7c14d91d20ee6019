// Decoders with experts train on any number of ranks, in every ZeRO stage, to what one rank trains,
// also where an expert gets no token of a rank. Sums have another order than one rank's, so numbers
// are compared.

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "runtime/models/decoder/build_model.h"
#include "runtime/models/layers/lm_loss.h"
#include "tests/ranks/decoder_run.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

constexpr char kBalanced[] = R"({"model_type":"qwen3_moe","vocab_size":48,"hidden_size":24,
    "intermediate_size":20,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
    "head_dim":6,"max_position_embeddings":16,"num_experts":5,"num_experts_per_tok":2,
    "moe_intermediate_size":8,"output_router_logits":true,"router_aux_loss_coef":0.5,
    "initializer_range":0.1})";

// Two ranks have nine and eight of an expert's seventeen.
constexpr char kUnevenExperts[] = R"({"model_type":"qwen3_moe","vocab_size":48,"hidden_size":24,
    "intermediate_size":20,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
    "head_dim":6,"max_position_embeddings":16,"num_local_experts":3,"num_experts_per_tok":2,
    "moe_intermediate_size":17,"norm_topk_prob":true,"initializer_range":0.1})";

TEST(Experts, EveryStageMatchesOneRank) {
  for (const char* model : {kMixtralDecoder, kManyExpertsDecoder}) {
    const auto alone = RunDecoder({.model = model}, 1, kTrainedSteps).steps;
    for (int stage = 0; stage <= 3; ++stage) {
      for (const std::int64_t accumulation : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} stage {} accumulation {}", model, stage, accumulation));
        const DecoderRun run{.model = model, .stage = stage, .accumulation = accumulation};
        ExpectSameSteps(alone, RunDecoder(run, /*ranks=*/4, kTrainedSteps).steps);
      }
    }
  }
}

// Every rank judges the balance of its own tokens, as in the reference, so that one rank's loss is
// another one.
TEST(Experts, EveryStageHasTheSameBitsWithTheirBalance) {
  for (const bool bf16 : {false, true}) {
    const DecoderOutcome unsharded =
        RunDecoder({.model = kBalanced, .bf16 = bf16}, 4, kTrainedSteps);
    for (int stage = 1; stage <= 3; ++stage) {
      SCOPED_TRACE(fmt::format("bf16 {} stage {}", bf16, stage));
      const DecoderRun run{.model = kBalanced, .stage = stage, .bf16 = bf16};
      ExpectSameParameters(unsharded, RunDecoder(run, 4, kTrainedSteps));
    }
  }
}

// The router's loads go from layer to layer, through what is computed again, too.
TEST(Experts, RecomputationHasTheSameBits) {
  for (const char* model : {kBalanced, kManyExpertsDecoder}) {
    const DecoderOutcome plain = RunDecoder({.model = model, .stage = 3}, 2, kTrainedSteps);
    using Kind = config::RecomputeChoice::Kind;
    for (const Kind kind : {Kind::kBlocks, Kind::kAttention}) {
      SCOPED_TRACE(static_cast<int>(kind));
      const DecoderRun run{.model = model, .stage = 3, .recompute = {.kind = kind}};
      ExpectSameParameters(plain, RunDecoder(run, 2, kTrainedSteps));
    }
  }
}

TEST(Experts, TilesDocumentsAndOffloadAreAsOnOneRank) {
  std::vector<DecoderRun> runs(4, {.model = kMixtralDecoder, .stage = 3});
  runs[0].mlp_tiles = 3;
  runs[1].packed = true;
  runs[2].offloads_optimizer = true;
  runs[3].model = kManyExpertsDecoder;
  runs[3].mlp_tiles = 2;
  for (const DecoderRun& run : runs) {
    SCOPED_TRACE(&run - runs.data());
    DecoderRun one{.model = run.model, .packed = run.packed};
    ExpectSameSteps(RunDecoder(one, 1, kTrainedSteps).steps,
                    RunDecoder(run, 2, kTrainedSteps).steps);
  }
}

// An expert without tokens has gradients, zeros: it is not one of those that are named and end the
// run.
TEST(Experts, AnExpertWithoutTokensIsNotUnused) {
  for (const int stage : {0, 3}) {
    const DecoderRun run{
        .model = kManyExpertsDecoder, .stage = stage, .accumulation = 2, .names_unused = true};
    ExpectSameSteps(RunDecoder({.model = kManyExpertsDecoder}, 1, kTrainedSteps).steps,
                    RunDecoder(run, 4, kTrainedSteps).steps);
  }
}

TEST(Experts, CheckpointsMoveBetweenRanksAndStages) {
  const DecoderRun one{.model = kManyExpertsDecoder};
  const DecoderRun sharded{.model = kManyExpertsDecoder, .stage = 3};
  const auto expected = GoOnFromCheckpoint(one, 1, one, 1);
  ExpectSameSteps(expected, GoOnFromCheckpoint(one, 1, sharded, 4));
  ExpectSameSteps(expected, GoOnFromCheckpoint(sharded, 2, one, 1));
  ExpectSameSteps(expected,
                  GoOnFromCheckpoint(sharded, 4, {.model = kManyExpertsDecoder, .stage = 2}, 2));
}

// A rank of a sequence sends its own tokens to experts.
TEST(Experts, SequenceRanksAndStagesMatchOneRank) {
  for (const char* model : {kMixtralDecoder, kManyExpertsDecoder}) {
    const auto alone = RunDecoder({.model = model}, 1, kTrainedSteps).steps;
    for (const int stage : {0, 1, 3}) {
      SCOPED_TRACE(fmt::format("{} stage {}", model, stage));
      ExpectSameSteps(
          alone,
          RunDecoder({.model = model, .sequence = 2, .stage = stage}, 4, kTrainedSteps).steps);
      ExpectSameSteps(
          alone, RunDecoder({.model = model, .pipeline = 2, .stage = stage, .accumulation = 2}, 4,
                            kTrainedSteps)
                     .steps);
    }
  }
}

// Every rank has a part of each expert and of the shared one.
TEST(Experts, TensorRanksMatchOneRank) {
  for (const char* model : {kMixtralDecoder, kManyExpertsDecoder, kBalanced}) {
    const auto alone = RunDecoder({.model = model}, 1, kTrainedSteps).steps;
    for (const int stage : {0, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} stage {}", model, stage));
      const bool has_balance = model == kBalanced;  // of one rank's samples
      const DecoderRun run{.model = model, .tensor = 2, .stage = stage};
      ExpectSameSteps(alone, RunDecoder(run, has_balance ? 2 : 4, kTrainedSteps).steps);
    }
    DecoderRun tiled{.model = model, .tensor = 2, .stage = 3, .mlp_tiles = 3};
    ExpectSameSteps(alone, RunDecoder(tiled, 2, kTrainedSteps).steps);
    tiled.recompute = {.kind = config::RecomputeChoice::Kind::kBlocks};
    ExpectSameSteps(alone, RunDecoder(tiled, 2, kTrainedSteps).steps);
  }
  const DecoderRun uneven{.model = kUnevenExperts, .tensor = 2, .stage = 1};
  ExpectSameSteps(RunDecoder({.model = kUnevenExperts}, 1, kTrainedSteps).steps,
                  RunDecoder(uneven, 2, kTrainedSteps).steps);
}

TEST(Experts, CheckpointsMoveBetweenTensorRanks) {
  const DecoderRun one{.model = kManyExpertsDecoder};
  const DecoderRun split{.model = kManyExpertsDecoder, .tensor = 2, .stage = 3};
  const auto expected = GoOnFromCheckpoint(one, 1, one, 1);
  ExpectSameSteps(expected, GoOnFromCheckpoint(one, 1, split, 4));
  ExpectSameSteps(expected, GoOnFromCheckpoint(split, 4, one, 2));
}

// Two routes of each token in each of the two layers, whoever has the token; ignored labels count.
TEST(Experts, AStepReportsTheRoutesOfAllRanks) {
  const auto alone = RunDecoder({.model = kMixtralDecoder}, 1, kTrainedSteps).steps;
  const DecoderRun run{.model = kMixtralDecoder, .sequence = 2, .stage = 3, .accumulation = 2};
  const auto ours = RunDecoder(run, 4, kTrainedSteps).steps;
  for (std::size_t i = 0; i < alone.size(); ++i) {
    ASSERT_EQ(alone[i].expert_routes.size(), 2U);
    for (const auto& layer : alone[i].expert_routes) {
      EXPECT_EQ(layer.size(), 4U);
      EXPECT_EQ(std::accumulate(layer.begin(), layer.end(), std::int64_t{0}), 2 * 8 * 12);
    }
  }
  EXPECT_EQ(ours[0].expert_routes, alone[0].expert_routes);
  // The last stage has counted, and one of its tensor ranks tells all.
  const DecoderRun stages{
      .model = kMixtralDecoder, .tensor = 2, .pipeline = 2, .stage = 1, .accumulation = 2};
  const auto of_stages = RunDecoder(stages, 8, kTrainedSteps).steps;
  EXPECT_EQ(of_stages[0].expert_routes, alone[0].expert_routes);
}

// The same documents in samples of another length, whose padding is marked: the same step.
TEST(Experts, PaddingIsNoToken) {
  const auto run = [](std::int64_t length, std::int64_t tiles) {
    StepResult result;
    testing::RunRanks(1, [&](comm::Communicator& world) {
      const auto model = models::BuildModel(
          models::ParseModelConfig(kBalanced, "config.json").value(), at::kFloat);
      model->train(true);
      const auto engine =
          Engine::create(model, TinyConfig({.stage = 1}), {.world = &world, .mlp_tiles = tiles})
              .value();
      const at::Tensor ids = at::arange(2 * 6).view({2, 6});
      const at::Tensor tokens = at::zeros({2, length}, at::kLong);
      const at::Tensor labels = at::full({2, length}, models::kIgnoredLabel, at::kLong);
      tokens.narrow(1, 0, 6).copy_(ids.mul(5).remainder(48));
      labels.narrow(1, 0, 6).copy_(ids.mul(7).remainder(48));
      const at::Tensor valid = at::arange(length).lt(6).expand({2, -1}).contiguous();
      engine->backward(
          engine->forward({.batch = {{"tokens", tokens}, {"labels", labels}, {"valid", valid}}}));
      result = engine->step().value();
    });
    return result;
  };
  const StepResult expected = run(6, 1);
  for (const auto& routes : expected.expert_routes) {
    EXPECT_EQ(std::accumulate(routes.begin(), routes.end(), std::int64_t{0}), 2 * 2 * 6);
  }
  for (const std::int64_t length : {7, 16}) {
    for (const std::int64_t tiles : {1, 3}) {
      SCOPED_TRACE(fmt::format("length {} tiles {}", length, tiles));
      const StepResult ours = run(length, tiles);
      EXPECT_NEAR(ours.loss, expected.loss, 1e-6 * expected.loss);
      EXPECT_NEAR(ours.grad_norm, expected.grad_norm, 1e-5 * expected.grad_norm);
      EXPECT_EQ(ours.expert_routes, expected.expert_routes);
    }
  }
}

// The load of the first stage's layers goes with their activations.
TEST(Experts, StagesOfAPipelineJudgeTheBalanceOfAllLayers) {
  const auto alone = RunDecoder({.model = kBalanced}, 1, kTrainedSteps).steps;
  ExpectSameSteps(alone, RunDecoder({.model = kBalanced, .pipeline = 2}, 2, kTrainedSteps).steps);
}

}  // namespace
}  // namespace ds::tests
