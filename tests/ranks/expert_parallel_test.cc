// Ranks with experts of their own train what one rank trains, in every ZeRO stage, and what ranks
// with all experts train. Sums have another order than one rank's, so numbers are compared.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/ranks/decoder_run.h"
#include "tests/support/pair_cover.h"
#include "tests/support/seeded_draw.h"

namespace ds::tests {
namespace {

constexpr char kEightBalanced[] = R"({"model_type":"qwen3_moe","vocab_size":48,"hidden_size":24,
    "intermediate_size":20,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
    "head_dim":6,"max_position_embeddings":16,"num_experts":8,"num_experts_per_tok":2,
    "moe_intermediate_size":8,"output_router_logits":true,"router_aux_loss_coef":0.5,
    "initializer_range":0.1})";

TEST(ExpertParallel, EveryStageMatchesOneRank) {
  for (const char* model : {kMixtralDecoder, kManyExpertsDecoder}) {
    const DecoderRun one{.model = model, .optimizer = config::SgdConfig{.momentum = 0.9}};
    const DecoderOutcome alone = RunDecoder(one, 1, kTrainedSteps);
    for (int stage = 0; stage <= 3; ++stage) {
      for (const int expert : {2, 4}) {
        for (const std::int64_t accumulation : {1, 2}) {
          SCOPED_TRACE(fmt::format("{} stage {} expert {} accumulation {}", model, stage, expert,
                                   accumulation));
          DecoderRun run = one;
          run.expert = expert;
          run.stage = stage;
          run.accumulation = accumulation;
          const DecoderOutcome ours = RunDecoder(run, /*ranks=*/4, kTrainedSteps);
          ExpectSameSteps(alone.steps, ours.steps);
          ExpectSameParameters(alone, ours);
        }
      }
    }
  }
}

// Neighbours with the same experts, in DeepSpeed's second order.
TEST(ExpertParallel, TheOrderOfTheRanksChangesNothing) {
  const auto alone = RunDecoder({.model = kMixtralDecoder}, 1, kTrainedSteps).steps;
  for (const int stage : {0, 2, 3}) {
    SCOPED_TRACE(stage);
    const DecoderRun run{
        .model = kMixtralDecoder, .expert = 2, .data_before_expert = true, .stage = stage};
    ExpectSameSteps(alone, RunDecoder(run, 4, kTrainedSteps).steps);
  }
}

// Every rank judges the balance of its own tokens, as the reference does, whoever has the experts.
TEST(ExpertParallel, TheBalanceIsThatOfRanksWithAllExperts) {
  for (const bool bf16 : {false, true}) {
    for (int stage = 0; stage <= 3; ++stage) {
      SCOPED_TRACE(fmt::format("bf16 {} stage {}", bf16, stage));
      DecoderRun run{.model = kEightBalanced, .stage = stage, .bf16 = bf16};
      const DecoderOutcome all_experts = RunDecoder(run, 4, kTrainedSteps);
      const StepTolerance narrow{.loss = 5e-3, .norm = 3e-2};
      for (const int expert : {2, 4}) {
        run.expert = expert;
        ExpectSameSteps(all_experts.steps, RunDecoder(run, 4, kTrainedSteps).steps,
                        bf16 ? narrow : StepTolerance());
      }
    }
  }
}

TEST(ExpertParallel, RecomputeTilesDocumentsAndOffloadAreAsOnOneRank) {
  using Kind = config::RecomputeChoice::Kind;
  std::vector<DecoderRun> runs(7, {.model = kMixtralDecoder, .expert = 2, .stage = 3});
  runs[0].mlp_tiles = 3;
  runs[1].packed = true;
  runs[2].offloads_optimizer = true;
  runs[3].recompute = {.kind = Kind::kBlocks};
  runs[4].recompute = {.kind = Kind::kAttention};
  runs[4].model = kManyExpertsDecoder;
  runs[5].offloads_optimizer = true;
  runs[5].expert = 4;
  runs[6].names_unused = true;
  runs[6].model = kManyExpertsDecoder;
  for (const DecoderRun& run : runs) {
    SCOPED_TRACE(&run - runs.data());
    const DecoderRun one{.model = run.model, .packed = run.packed};
    ExpectSameSteps(RunDecoder(one, 1, kTrainedSteps).steps,
                    RunDecoder(run, 4, kTrainedSteps).steps);
  }
}

TEST(ExpertParallel, MatchesOneRankWithTensorSequenceAndPipelineRanks) {
  for (const char* model : {kMixtralDecoder, kManyExpertsDecoder}) {
    const auto alone = RunDecoder({.model = model}, 1, kTrainedSteps).steps;
    for (const int stage : {0, 1, 2, 3}) {
      std::vector<DecoderRun> runs(4, {.model = model, .expert = 2, .stage = stage});
      runs[0].tensor = 2;
      runs[1].sequence = 2;
      runs[2].sequence = 2;
      runs[2].expert = 4;
      runs[3].pipeline = 2;
      runs[3].accumulation = 2;
      for (const DecoderRun& run : runs) {
        SCOPED_TRACE(fmt::format("{} stage {}: {}", model, stage, &run - runs.data()));
        ExpectSameSteps(alone, RunDecoder(run, 4, kTrainedSteps).steps);
      }
    }
    const DecoderRun all{
        .model = model, .tensor = 2, .pipeline = 2, .expert = 2, .stage = 1, .accumulation = 2};
    ExpectSameSteps(alone, RunDecoder(all, 8, kTrainedSteps).steps);
  }
}

TEST(ExpertParallel, CheckpointsMoveBetweenAllDegrees) {
  const DecoderRun one{.model = kManyExpertsDecoder};
  const DecoderRun two{.model = kManyExpertsDecoder, .expert = 2, .stage = 3};
  const DecoderRun four{.model = kManyExpertsDecoder, .expert = 4, .stage = 1};
  const DecoderRun full{.model = kManyExpertsDecoder, .expert = 2, .stage = 0};
  const DecoderRun tensor{.model = kManyExpertsDecoder, .tensor = 2, .expert = 2, .stage = 2};
  const auto expected = GoOnFromCheckpoint(one, 1, one, 1);
  ExpectSameSteps(expected, GoOnFromCheckpoint(one, 1, two, 4));
  ExpectSameSteps(expected, GoOnFromCheckpoint(two, 4, four, 4));
  ExpectSameSteps(expected, GoOnFromCheckpoint(four, 4, one, 2));
  ExpectSameSteps(expected, GoOnFromCheckpoint(two, 4, full, 2));
  ExpectSameSteps(expected, GoOnFromCheckpoint(full, 4, tensor, 4));
  ExpectSameSteps(expected, GoOnFromCheckpoint(tensor, 4, two, 2));
}

TEST(ExpertParallel, AStepReportsTheRoutesOfAllRanks) {
  const auto alone = RunDecoder({.model = kMixtralDecoder}, 1, kTrainedSteps).steps;
  const DecoderRun run{.model = kMixtralDecoder, .expert = 4, .stage = 3};
  const auto ours = RunDecoder(run, 4, kTrainedSteps).steps;
  ASSERT_EQ(ours[0].expert_routes.size(), 2U);
  EXPECT_EQ(ours[0].expert_routes, alone[0].expert_routes);
}

// Adapters stand beside the attention, and experts, which are frozen, lie on ranks of their own.
TEST(ExpertParallel, AdaptersTrainAsOnOneRank) {
  const auto alone = RunDecoder({.model = kMixtralDecoder, .lora_rank = 2}, 1, kTrainedSteps);
  for (const int stage : {0, 2, 3}) {
    SCOPED_TRACE(stage);
    const DecoderRun run{.model = kMixtralDecoder, .expert = 2, .stage = stage, .lora_rank = 2};
    const auto ours = RunDecoder(run, 4, kTrainedSteps);
    ExpectSameSteps(alone.steps, ours.steps);
    ExpectSameParameters(alone, ours);
  }
}

TEST(ExpertParallel, EvaluationSeesTheSameLoss) {
  const DecoderRun one{.model = kMixtralDecoder};
  const auto expected = EvaluateDecoder(one, 1);
  for (const int stage : {0, 3}) {
    const auto ours = EvaluateDecoder({.model = kMixtralDecoder, .expert = 2, .stage = stage}, 4);
    EXPECT_NEAR(ours.loss, expected.loss, 1e-6);
    EXPECT_EQ(ours.labels, expected.labels);
  }
}

// Draws what goes with ranks that have experts of their own, on eight of them at most.
class ExpertWalk {
 public:
  struct Step {
    DecoderRun run;
    int ranks = 1;
  };
  Step Next() {
    while (true) {
      Step step = Draw();
      const DecoderRun& run = step.run;
      const int readers = step.ranks / run.ranks_of_a_sample();
      const bool shares = readers * run.sequence % run.expert == 0;
      if (step.ranks <= 8 && shares && 8 % (readers * run.accumulation) == 0) return step;
    }
  }

 private:
  Step Draw() {
    using Kind = config::RecomputeChoice::Kind;
    DecoderRun run{.model = draw_.OneOf({0, 1}) == 0 ? kMixtralDecoder : kManyExpertsDecoder,
                   .tensor = draw_.OneOf({1, 1, 2}),
                   .sequence = draw_.OneOf({1, 1, 2}),
                   .pipeline = draw_.OneOf({1, 1, 2}),
                   .expert = draw_.OneOf({2, 2, 4}),
                   .data_before_expert = draw_.OneOf({0, 1}) == 1,
                   .stage = draw_.OneOf({0, 1, 2, 3}),
                   .accumulation = draw_.OneOf({1, 2, 4}),
                   .recompute = {.kind = draw_.OneOf({0, 0, 1}) == 1 ? Kind::kBlocks : Kind::kNone},
                   .mlp_tiles = draw_.OneOf({1, 1, 3})};
    if (run.pipeline > 1 && draw_.OneOf({0, 1}) == 1) run.schedule = pipeline::ScheduleKind::kGPipe;
    return {run, run.ranks_of_a_sample() * draw_.OneOf({1, 2, 4})};
  }

  testing::SeededDraw draw_{/*seed=*/4};
};

// Compares runs of two steps with one rank's of the same model, each of which it makes once.
class AloneExperts {
 public:
  void ExpectSame(const ExpertWalk::Step& step) {
    const auto& [run, ranks] = step;
    if (!alone_.contains(run.model)) {
      alone_[run.model] = RunDecoder({.model = run.model}, 1, kSteps).steps;
    }
    ExpectSameSteps(alone_[run.model], RunDecoder(run, ranks, kSteps).steps);
  }

 private:
  static constexpr int kSteps = 2;
  std::map<std::string, std::vector<StepResult>> alone_;
};

testing::Traits TraitsOf(const ExpertWalk::Step& step) {
  const DecoderRun& run = step.run;
  const bool recomputes = run.recompute.kind != config::RecomputeChoice::Kind::kNone;
  return {run.model == kMixtralDecoder ? "mixtral" : "qwen2_moe",
          fmt::format("pp {}", run.pipeline),
          std::string(NameOf(run.schedule)),
          fmt::format("tp {}", run.tensor),
          fmt::format("sp {}", run.sequence),
          fmt::format("ep {}", run.expert),
          run.data_before_expert ? "data before expert" : "expert before data",
          fmt::format("{} readers", step.ranks / run.ranks_of_a_sample()),
          fmt::format("ZeRO {}", run.stage),
          fmt::format("{} micro-batches", run.accumulation),
          recomputes ? "recomputes" : "keeps",
          fmt::format("{} tiles", run.mlp_tiles)};
}

TEST(ExpertParallel, ASeededWalkOverAllCombinationsMatchesOneRank) {
  constexpr int kWalks = 32;
  ExpertWalk walk;
  AloneExperts alone;
  for (int i = 0; i < kWalks; ++i) {
    const ExpertWalk::Step step = walk.Next();
    SCOPED_TRACE(::testing::PrintToString(TraitsOf(step)));
    alone.ExpectSame(step);
    if (::testing::Test::HasFailure()) return;  // others would say the same
  }
}

// Any two choices that go together are made by one of the runs of each cover, with others beside
// them in each.
TEST(ExpertParallel, EveryPairOfChoicesMatchesOneRank) {
  constexpr int kCovers = 20, kCases = 2000;
  ExpertWalk walk;
  AloneExperts alone;
  testing::VisitCovers(
      kCovers, kCases, [&] { return walk.Next(); }, TraitsOf,
      [&](const ExpertWalk::Step& step, const testing::Traits& traits) {
        SCOPED_TRACE(::testing::PrintToString(traits));
        alone.ExpectSame(step);
        return !::testing::Test::HasFailure();
      });
}

}  // namespace
}  // namespace ds::tests
