// Decoders whose samples lie in parts on the ranks along the sequence axis train to what one rank
// trains: every ZeRO stage, which cuts the state among these ranks too, with data and tensor
// parallelism beside it. Sums have another order than one rank's, so numbers are compared.

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/parallel/sequence/group.h"
#include "tests/ranks/decoder_run.h"
#include "tests/ranks/device_world.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

// The first of two ranks has four of the queries' heads, the second two; with dropout of weights.
constexpr char kUnevenSequence[] = R"({"model_type":"llama","vocab_size":48,"hidden_size":24,
    "intermediate_size":42,"num_hidden_layers":2,"num_attention_heads":6,"num_key_value_heads":3,
    "max_position_embeddings":16,"attention_dropout":0.1})";

// Of every five labels one is ignored, so that the parts of a sample count differently.
TEST(SequenceParallel, EveryStageMatchesOneRank) {
  for (const char* model : {kDroppingDecoder, kLlamaDecoder}) {
    const auto alone = RunDecoder({.model = model}, 1, kTrainedSteps).steps;
    for (int stage = 0; stage <= 3; ++stage) {
      for (const std::int64_t accumulation : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} stage {} accumulation {}", model, stage, accumulation));
        const DecoderRun run{
            .model = model, .sequence = 2, .stage = stage, .accumulation = accumulation};
        ExpectSameSteps(alone, RunDecoder(run, /*ranks=*/4, kTrainedSteps).steps);
      }
    }
  }
}

// Products and sums round on the way, and Adam's first updates are the signs of gradients.
TEST(SequenceParallel, EveryStageTrainsInBf16) {
  const auto alone = RunDecoder({.model = kLlamaDecoder, .bf16 = true}, 1, kTrainedSteps).steps;
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    const DecoderRun run{.model = kLlamaDecoder, .sequence = 2, .stage = stage, .bf16 = true};
    ExpectSameSteps(alone, RunDecoder(run, 4, kTrainedSteps).steps, {.loss = 2e-2, .norm = 0.08});
  }
}

TEST(SequenceParallel, HeadsAreSharedUnevenlyAndThoseOfTheKeysRepeated) {
  const std::pair<const char*, int> splits[] = {{kUnevenSequence, 2},   {kUnevenSequence, 6},
                                                {kLlamaDecoder, 4},     {kWindowedDecoder, 4},
                                                {kDistancesDecoder, 2}, {kDistancesDecoder, 3}};
  for (const auto& [model, sequence] : splits) {
    SCOPED_TRACE(fmt::format("{} on {}", model, sequence));
    const auto alone = RunDecoder({.model = model}, 1, kTrainedSteps).steps;
    const DecoderRun run{.model = model, .sequence = sequence, .stage = 3};
    ExpectSameSteps(alone, RunDecoder(run, sequence, kTrainedSteps).steps);
  }
}

TEST(SequenceParallel, EvaluationCountsTheLabelsOfAllParts) {
  const auto alone = EvaluateDecoder({.model = kDroppingDecoder}, 1);
  const DecoderRun run{.model = kDroppingDecoder, .sequence = 2, .accumulation = 2};
  const auto split = EvaluateDecoder(run, /*ranks=*/4);
  EXPECT_NEAR(split.loss, alone.loss, 1e-5);
  EXPECT_EQ(split.labels, alone.labels);
  EXPECT_EQ(split.accuracy, alone.accuracy);
  EXPECT_GT(alone.accuracy, 0.0);
}

// Parts begin and end inside documents.
TEST(SequenceParallel, PackedDocumentsReachOverParts) {
  for (const char* model : {kDroppingDecoder, kLlamaDecoder}) {
    SCOPED_TRACE(model);
    const auto alone = RunDecoder({.model = model, .packed = true}, 1, kTrainedSteps).steps;
    const auto full = RunDecoder({.model = model}, 1, 1).steps;
    EXPECT_GT(std::abs(alone[0].loss - full[0].loss), 1e-4) << "documents change what is seen";
    const DecoderRun run{.model = model, .sequence = 4, .stage = 1, .packed = true};
    ExpectSameSteps(alone, RunDecoder(run, 4, kTrainedSteps).steps);
  }
}

TEST(SequenceParallel, GoesWithTensorParallelismAndRecompute) {
  using Kind = config::RecomputeChoice::Kind;
  for (const char* model : {kDroppingDecoder, kLlamaDecoder}) {
    const auto alone = RunDecoder({.model = model}, 1, kTrainedSteps).steps;
    for (const Kind kind : {Kind::kNone, Kind::kBlocks, Kind::kAttention}) {
      SCOPED_TRACE(fmt::format("{} recompute {}", model, static_cast<int>(kind)));
      const DecoderRun run{
          .model = model, .tensor = 2, .sequence = 2, .stage = 2, .recompute = {.kind = kind}};
      ExpectSameSteps(alone, RunDecoder(run, 8, kTrainedSteps).steps);
    }
  }
}

TEST(SequenceParallel, CheckpointsMoveBetweenDegrees) {
  const DecoderRun alone{.model = kDroppingDecoder};
  const DecoderRun halves{.model = kDroppingDecoder, .sequence = 2, .stage = 2};
  const DecoderRun quarters{.model = kDroppingDecoder, .sequence = 4, .stage = 3};
  const DecoderRun slices{.model = kDroppingDecoder, .tensor = 2, .stage = 3};
  auto through = RunDecoder(alone, 1, 4).steps;
  through.erase(through.begin(), through.begin() + 2);
  ExpectSameSteps(through, GoOnFromCheckpoint(halves, 4, alone, 1));
  ExpectSameSteps(through, GoOnFromCheckpoint(alone, 1, quarters, 4));
  ExpectSameSteps(through, GoOnFromCheckpoint(quarters, 4, slices, 2));
}

// A number says where it stands: token, head, place in the head.
TEST(SequenceParallel, ATokensHeadsGoToTheRanksThatHaveThem) {
  constexpr std::int64_t kTokens = 6, kHeads = 5, kWidth = 2;
  testing::RunRanks(3, [&](comm::Communicator& world) {
    const sequence_parallel::SequenceGroup group(world);
    const at::Tensor all =
        at::arange(2 * kTokens * kHeads * kWidth).view({2, kTokens, kHeads, kWidth});
    const auto shares = sequence_parallel::ShareHeads(kHeads, kHeads, 3)->queries;
    const auto& own = shares[static_cast<std::size_t>(world.rank())];
    const at::Tensor tokens = all.narrow(1, world.rank() * 2, 2);
    const at::Tensor heads = group.TokensToHeads(tokens, shares);
    EXPECT_TRUE(heads.equal(all.narrow(2, own.first, own.count)));
    EXPECT_TRUE(group.HeadsToTokens(heads.flatten(2), shares).equal(tokens.flatten(2)));
    // Two of the ranks have head 1: its gradient is of both.
    const at::Tensor x = tokens.to(at::kFloat).narrow(2, 0, 2).requires_grad_();
    group.TokensToHeads(x, {{0, 1}, {1, 1}, {1, 1}}).sum().backward();
    EXPECT_TRUE(x.grad().select(2, 0).eq(1).all().item<bool>());
    EXPECT_TRUE(x.grad().select(2, 1).eq(2).all().item<bool>());
  });
}

// Tokens and heads are what ranks of a sample move on the device; all else takes control groups.
TEST(SequenceParallel, SharesNumbersOverTheControlGroup) {
  for (const int stage : {0, 1, 2, 3}) {
    testing::RunRanks(4, [&](comm::Communicator& host) {
      const auto world = MakeDeviceWorld(host);
      const DecoderRun run{
          .model = kLlamaDecoder, .sequence = 2, .stage = stage, .bf16 = stage % 2 == 1};
      const auto engine = MakeDecoderEngine(run, *world);
      EXPECT_EQ(TrainDecoder(*engine, run, 2).size(), 2U);
      EXPECT_EQ(ExportAll(*engine).empty(), host.rank() != 0);
    });
  }
}

TEST(SequenceParallel, ASampleThatHasNoEqualPartsIsRefused) {
  testing::RunRanks(2, [](comm::Communicator& world) {
    const auto engine = MakeDecoderEngine({.model = kLlamaDecoder, .sequence = 2}, world);
    const at::Tensor odd = at::zeros({1, 5}, at::kLong);
    EXPECT_THROW(engine->forward({.batch = {{"tokens", odd}, {"labels", odd}}}), c10::Error);
  });
}

}  // namespace
}  // namespace ds::tests
