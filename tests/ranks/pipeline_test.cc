// Decoders cut into the stages of a pipeline train to what one rank trains: every schedule, with
// data parallelism beside it, and whatever else changes how a step runs. Gradients of what two
// stages hold and squares of the norm are added up in another order than one rank's.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "runtime/device/memory_ledger.h"
#include "runtime/engine/tensor_access.h"
#include "tests/ranks/decoder_run.h"
#include "tests/ranks/device_world.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using pipeline::ScheduleKind;
using ::testing::HasSubstr;

// A row of the table of tokens starts at 0, and the head is tied to it.
constexpr char kPaddedDecoder[] = R"({"model_type":"opt","vocab_size":48,"hidden_size":24,
    "ffn_dim":42,"num_hidden_layers":2,"max_position_embeddings":16,"num_attention_heads":4,
    "pad_token_id":30,"word_embed_proj_dim":24,"dropout":0.0,"attention_dropout":0.0})";

// How stages compute. Four blocks are enough for two stages of two chunks.
struct Order {
  ScheduleKind kind = ScheduleKind::kOneForwardOneBackward;
  int chunks = 1;
};
constexpr Order kFullStages[] = {
    {ScheduleKind::kGPipe}, {ScheduleKind::kOneForwardOneBackward}, {ScheduleKind::kZeroBubbleH1}};
constexpr Order kInTwoChunks[] = {{ScheduleKind::kInterleaved, 2}, {ScheduleKind::kZeroBubbleV, 2}};

struct PipelineCut {
  int stages = 1, readers = 1, zero = 0;
};

// Dropout, a tied head, four blocks; accumulation and clipping.
void ExpectTrainsWhatOneRankTrains(std::span<const Order> orders,
                                   const std::vector<PipelineCut>& splits) {
  for (const char* model : {kDroppingDecoder, kLlamaDecoder}) {
    const DecoderRun one{
        .model = model, .accumulation = 4, .optimizer = config::SgdConfig{.momentum = 0.9}};
    const DecoderOutcome alone = RunDecoder(one, 1, kTrainedSteps);
    for (const Order& order : orders) {
      for (const PipelineCut& split : splits) {
        SCOPED_TRACE(fmt::format("{} {} {}x{} ZeRO {}", model, NameOf(order.kind), split.stages,
                                 split.readers, split.zero));
        DecoderRun run = one;
        run.pipeline = split.stages;
        run.schedule = order.kind;
        run.chunks = order.chunks;
        run.stage = split.zero;
        const DecoderOutcome ours = RunDecoder(run, split.stages * split.readers, kTrainedSteps);
        ExpectSameSteps(alone.steps, ours.steps);
        // Several readers' losses are added up in another order.
        if (split.readers == 1) {
          EXPECT_EQ(ours.steps[0].loss, alone.steps[0].loss);
        }
        ExpectSameParameters(alone, ours);
      }
    }
  }
}

TEST(Pipeline, EveryScheduleMatchesOneRank) {
  ExpectTrainsWhatOneRankTrains(
      kFullStages,
      {{2, 1, 0}, {2, 2, 0}, {2, 2, 1}, {2, 2, 2}, {2, 2, 3}, {3, 2, 1}, {3, 1, 3}, {4, 2, 0}});
}

TEST(Pipeline, StagesOfSeveralChunksMatchOneRank) {
  ExpectTrainsWhatOneRankTrains(kInTwoChunks,
                                {{2, 1, 0}, {2, 2, 0}, {2, 2, 1}, {2, 2, 2}, {2, 2, 3}});
}

TEST(Pipeline, TheFirstLossHasTheBitsOfOneRanks) {
  for (const char* model : {kDroppingDecoder, kLlamaDecoder}) {
    const DecoderRun one{.model = model, .accumulation = 4};
    DecoderRun three = one;
    three.pipeline = 3;
    EXPECT_EQ(RunDecoder(three, 3, 1).steps[0].loss, RunDecoder(one, 1, 1).steps[0].loss);
  }
}

TEST(Pipeline, InitialValuesAndExportsDoNotDependOnThePartition) {
  for (const char* model : {kDroppingDecoder, kLlamaDecoder, kPaddedDecoder}) {
    SCOPED_TRACE(model);
    const DecoderOutcome alone = RunDecoder({.model = model}, 1, /*steps=*/0);
    const DecoderOutcome split =
        RunDecoder({.model = model, .pipeline = 4, .stage = 1}, 8, /*steps=*/0);
    ASSERT_EQ(split.parameters.size(), alone.parameters.size());
    for (const auto& [name, value] : alone.parameters) {
      EXPECT_TRUE(split.parameters.at(name).equal(value)) << name;
    }
  }
}

TEST(Pipeline, NarrowTypesMatchOneRank) {
  const StepTolerance narrow{.loss = 2e-2, .norm = 0.08};
  for (const bool bf16 : {true, false}) {
    for (const int zero : {0, 1}) {
      SCOPED_TRACE(fmt::format("bf16 {} ZeRO {}", bf16, zero));
      DecoderRun run{.model = kDroppingDecoder, .stage = zero, .accumulation = 2, .bf16 = bf16};
      if (!bf16) run.fp16 = {.enabled = true, .initial_scale_power = 10};
      const DecoderOutcome alone = RunDecoder(run, 1, kTrainedSteps);
      run.pipeline = 2;
      ExpectSameSteps(alone.steps, RunDecoder(run, 4, kTrainedSteps).steps, narrow);
      run.schedule = ScheduleKind::kZeroBubbleH1;
      ExpectSameSteps(alone.steps, RunDecoder(run, 4, kTrainedSteps).steps, narrow);
    }
  }
}

// The scale is lowered by all stages, whichever has seen what is not finite.
TEST(Pipeline, StagesAgreeOnTheLossScale) {
  DecoderRun run{.model = kLlamaDecoder,
                 .accumulation = 2,
                 .fp16 = {.enabled = true, .initial_scale_power = 24, .hysteresis = 1}};
  const DecoderOutcome alone = RunDecoder(run, 1, 12);
  run.pipeline = 3;
  const DecoderOutcome ours = RunDecoder(run, 3, 12);
  EXPECT_TRUE(alone.steps[0].skipped);
  EXPECT_FALSE(alone.steps.back().skipped);
  for (std::size_t i = 0; i < alone.steps.size(); ++i) {
    EXPECT_EQ(ours.steps[i].skipped, alone.steps[i].skipped) << i;
    EXPECT_EQ(ours.steps[i].loss_scale, alone.steps[i].loss_scale) << i;
  }
  EXPECT_THAT(ours.steps[0].non_finite, HasSubstr("the gradient of "));
}

TEST(Pipeline, RecomputationTilesPackingAndSearchChangeNothing) {
  const DecoderRun plain{.model = kDroppingDecoder, .pipeline = 2, .accumulation = 2};
  using Kind = config::RecomputeChoice::Kind;
  std::vector<DecoderRun> runs(5, plain);
  runs[0].recompute = {.kind = Kind::kBlocks};
  runs[1].recompute = {.kind = Kind::kAttention};
  runs[2].mlp_tiles = 3;
  runs[3].packed = true;
  runs[4].names_unused = true;
  for (const DecoderRun& run : runs) {
    DecoderRun one = run;
    one.pipeline = 1;
    const DecoderOutcome alone = RunDecoder(one, 1, kTrainedSteps);
    for (const Order& order :
         {Order{}, Order{ScheduleKind::kInterleaved, 2}, Order{ScheduleKind::kZeroBubbleH1},
          Order{ScheduleKind::kZeroBubbleV, 2}}) {
      SCOPED_TRACE(fmt::format("{} {}", &run - runs.data(), NameOf(order.kind)));
      DecoderRun ours = run;
      ours.schedule = order.kind;
      ours.chunks = order.chunks;
      ExpectSameSteps(alone.steps, RunDecoder(ours, 2, kTrainedSteps).steps);
    }
  }
}

TEST(Pipeline, CheckpointsMoveBetweenStages) {
  for (const char* model : {kDroppingDecoder, kLlamaDecoder}) {
    const DecoderRun alone{.model = model};
    const DecoderOutcome through = RunDecoder(alone, 1, 4);
    const DecoderRun two{.model = model, .pipeline = 2, .stage = 3, .accumulation = 2};
    const DecoderRun four{.model = model, .pipeline = 4, .accumulation = 4};
    const DecoderRun zero{.model = model, .stage = 3};
    const std::tuple<DecoderRun, int, DecoderRun, int> moves[] = {
        {two, 4, alone, 1}, {alone, 1, four, 4}, {four, 4, two, 4}, {zero, 2, two, 2}};
    for (const auto& [first, ranks_of_first, second, ranks_of_second] : moves) {
      SCOPED_TRACE(fmt::format("{} from {} to {} stages", model, first.pipeline, second.pipeline));
      const auto steps = GoOnFromCheckpoint(first, ranks_of_first, second, ranks_of_second);
      ASSERT_EQ(steps.size(), 2U);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_NEAR(steps[i].loss, through.steps[i + 2].loss, 1e-5);
        EXPECT_NEAR(steps[i].grad_norm, through.steps[i + 2].grad_norm, 1e-4);
      }
    }
  }
}

TEST(Pipeline, EvaluatesLikeOneRank) {
  const DecoderRun one{.model = kDroppingDecoder, .accumulation = 4};
  const auto expected = EvaluateDecoder(one, 1);
  DecoderRun split = one;
  for (const int stages : {2, 3}) {
    split.pipeline = stages;
    const auto ours = EvaluateDecoder(split, 2 * stages);
    EXPECT_NEAR(ours.loss, expected.loss, 1e-6);
    EXPECT_EQ(ours.labels, expected.labels);
    EXPECT_EQ(ours.accuracy, expected.accuracy);
  }
}

// Each part of the model is on its stage alone, but for what two of them read.
TEST(Pipeline, AStageHoldsItsOwnParameters) {
  std::vector<std::int64_t> of_stages(3);
  std::int64_t counted = 0;
  testing::RunRanks(3, [&](comm::Communicator& world) {
    const DecoderRun run{.model = kDroppingDecoder, .pipeline = 3};
    const auto engine = MakeDecoderEngine(run, world);
    TrainDecoder(*engine, run, 1);
    const device::MemoryLedger& ledger = engine->ledger();
    of_stages[static_cast<std::size_t>(world.rank())] =
        ledger.Bytes(device::MemoryUse::kParameters, device::MemoryTier::kHost) /
        std::int64_t{sizeof(float)};
    if (world.rank() == 2) counted = engine->parameter_count();
  });
  const std::int64_t table = 47 * 24, positions = 16 * 24, layer = 12 * 24 * 24 + 13 * 24;
  EXPECT_EQ(counted, table + positions + 2 * layer + 2 * 24);
  EXPECT_NEAR(static_cast<double>(of_stages[0]), table + positions + layer, 300);
  EXPECT_NEAR(static_cast<double>(of_stages[1]), layer, 300);
  EXPECT_NEAR(static_cast<double>(of_stages[2]), table + 2 * 24, 300);
}

TEST(Pipeline, SharesNumbersOverTheControlGroup) {
  testing::RunRanks(4, [&](comm::Communicator& host) {
    const auto world = MakeDeviceWorld(host);
    const DecoderRun run{.model = kDroppingDecoder, .pipeline = 2, .stage = 1};
    const auto engine = MakeDecoderEngine(run, *world);
    EXPECT_EQ(TrainDecoder(*engine, run, 2).size(), 2U);
    EXPECT_EQ(ExportAll(*engine).empty(), host.rank() != 0);
  });
}

TEST(Pipeline, RefusesFeaturesThatAStageDoesNotSupport) {
  testing::RunRanks(2, [](comm::Communicator& world) {
    const DecoderRun run{.model = kLlamaDecoder, .pipeline = 2};
    const auto engine = MakeDecoderEngine(run, world);
    EXPECT_THROW(engine->forward({}), c10::Error);
    EXPECT_THAT(TensorAccess(*engine).GetFullFp32Param("lm_head.weight").status().message(),
                HasSubstr("TensorAccess is not built with a pipeline, which has 2 stages here"));
    config::DsConfig config;
    config.parallel.pipeline = 2;
    const auto refusal = [&] {
      return Engine::create(MakeTinyModel({}, at::TensorOptions()), config, {.world = &world})
          .status()
          .message();
    };
    EXPECT_THAT(refusal(), HasSubstr("the model is stage 0 of 1, and rank 0 is of stage 0 of 2"));
    const auto create = [&](const config::OptimizerAlgorithm& algorithm) {
      auto model = MakeTinyModel({}, at::TensorOptions());
      model->SetPart({.stage = world.rank(), .stages = 2, .chunks = {{0, 5}}, .all = 10});
      config.optimizer.algorithm = algorithm;
      return Engine::create(model, config, {.world = &world}).status().message();
    };
    EXPECT_THAT(create(config::LambConfig{}),
                HasSubstr("needs more than one stage is not built with a pipeline"));
  });
}

}  // namespace
}  // namespace ds::tests
