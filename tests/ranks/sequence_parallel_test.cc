// Decoders whose samples lie in parts on the ranks along the sequence axis train to what one rank
// trains: every ZeRO stage, which cuts the state among these ranks too, with data and tensor
// parallelism beside it. Sums have another order than one rank's, so numbers are compared.

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/sequence_parallel/group.h"
#include "tests/ranks/decoder_run.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

constexpr int kStepsBySequence = 3;

constexpr char kGpt2Sequence[] = R"({"model_type":"gpt2","vocab_size":47,"n_positions":16,
    "n_embd":24,"n_layer":2,"n_head":4,"embd_pdrop":0.1,"resid_pdrop":0.1,"attn_pdrop":0.1})";
constexpr char kLlamaSequence[] = R"({"model_type":"llama","vocab_size":48,"hidden_size":24,
    "intermediate_size":42,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
    "max_position_embeddings":16})";
// The first of two ranks has four of the queries' heads, the second two; with dropout of weights.
constexpr char kUnevenSequence[] = R"({"model_type":"llama","vocab_size":48,"hidden_size":24,
    "intermediate_size":42,"num_hidden_layers":2,"num_attention_heads":6,"num_key_value_heads":3,
    "max_position_embeddings":16,"attention_dropout":0.1})";
// Each token sees five.
constexpr char kMistralSequence[] = R"({"model_type":"mistral","vocab_size":48,"hidden_size":24,
    "intermediate_size":42,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":4,
    "max_position_embeddings":16,"sliding_window":5})";
// Distances that differ by head, in numbers that three heads have and two times two have not.
constexpr char kBloomSequence[] = R"({"model_type":"bloom","vocab_size":47,"hidden_size":24,
    "n_layer":2,"n_head":3,"hidden_dropout":0.0,"attention_dropout":0.0})";

// Norms are compared relative to what they are.
void ExpectTheSame(const std::vector<StepResult>& expected, const std::vector<StepResult>& ours,
                   double of_loss = 1e-5, double of_norm = 1e-5) {
  ASSERT_EQ(ours.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(ours[i].loss, expected[i].loss, of_loss) << i;
    EXPECT_NEAR(ours[i].grad_norm, expected[i].grad_norm,
                of_norm * std::max(1.0, expected[i].grad_norm))
        << i;
    EXPECT_EQ(ours[i].tokens, expected[i].tokens);
    EXPECT_EQ(ours[i].samples, expected[i].samples);
  }
}

// Of every five labels one is ignored, so that the parts of a sample count differently.
TEST(SequenceParallel, EveryStageTrainsWhatOneRankTrains) {
  for (const char* model : {kGpt2Sequence, kLlamaSequence}) {
    const auto alone = RunDecoder({.model = model}, 1, kStepsBySequence).steps;
    for (int stage = 0; stage <= 3; ++stage) {
      for (const std::int64_t accumulation : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} stage {} accumulation {}", model, stage, accumulation));
        const DecoderRun run{
            .model = model, .sequence = 2, .stage = stage, .accumulation = accumulation};
        ExpectTheSame(alone, RunDecoder(run, /*ranks=*/4, kStepsBySequence).steps);
      }
    }
  }
}

// Products and sums round on the way, and Adam's first updates are the signs of gradients.
TEST(SequenceParallel, EveryStageTrainsInBf16) {
  const auto alone = RunDecoder({.model = kLlamaSequence, .bf16 = true}, 1, kStepsBySequence).steps;
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    const DecoderRun run{.model = kLlamaSequence, .sequence = 2, .stage = stage, .bf16 = true};
    ExpectTheSame(alone, RunDecoder(run, 4, kStepsBySequence).steps, /*of_loss=*/2e-2,
                  /*of_norm=*/0.08);
  }
}

TEST(SequenceParallel, HeadsAreSharedUnevenlyAndThoseOfTheKeysRepeated) {
  const std::pair<const char*, int> cuts[] = {{kUnevenSequence, 2}, {kUnevenSequence, 6},
                                              {kLlamaSequence, 4},  {kMistralSequence, 4},
                                              {kBloomSequence, 2},  {kBloomSequence, 3}};
  for (const auto& [model, sequence] : cuts) {
    SCOPED_TRACE(fmt::format("{} on {}", model, sequence));
    const auto alone = RunDecoder({.model = model}, 1, kStepsBySequence).steps;
    const DecoderRun run{.model = model, .sequence = sequence, .stage = 3};
    ExpectTheSame(alone, RunDecoder(run, sequence, kStepsBySequence).steps);
  }
}

TEST(SequenceParallel, EvaluationCountsTheLabelsOfAllParts) {
  const auto alone = EvaluateDecoder({.model = kGpt2Sequence}, 1);
  const DecoderRun run{.model = kGpt2Sequence, .sequence = 2, .accumulation = 2};
  const auto cut = EvaluateDecoder(run, /*ranks=*/4);
  EXPECT_NEAR(cut.loss, alone.loss, 1e-5);
  EXPECT_EQ(cut.labels, alone.labels);
}

// Parts begin and end inside documents.
TEST(SequenceParallel, PackedDocumentsReachOverParts) {
  for (const char* model : {kGpt2Sequence, kLlamaSequence}) {
    SCOPED_TRACE(model);
    const auto alone = RunDecoder({.model = model, .packed = true}, 1, kStepsBySequence).steps;
    const auto whole = RunDecoder({.model = model}, 1, 1).steps;
    EXPECT_GT(std::abs(alone[0].loss - whole[0].loss), 1e-4) << "documents change what is seen";
    const DecoderRun run{.model = model, .sequence = 4, .stage = 1, .packed = true};
    ExpectTheSame(alone, RunDecoder(run, 4, kStepsBySequence).steps);
  }
}

TEST(SequenceParallel, GoesWithTensorParallelismAndRecompute) {
  using Kind = config::RecomputeChoice::Kind;
  for (const char* model : {kGpt2Sequence, kLlamaSequence}) {
    const auto alone = RunDecoder({.model = model}, 1, kStepsBySequence).steps;
    for (const Kind kind : {Kind::kNone, Kind::kBlocks, Kind::kAttention}) {
      SCOPED_TRACE(fmt::format("{} recompute {}", model, static_cast<int>(kind)));
      const DecoderRun run{
          .model = model, .tensor = 2, .sequence = 2, .stage = 2, .recompute = {.kind = kind}};
      ExpectTheSame(alone, RunDecoder(run, 8, kStepsBySequence).steps);
    }
  }
}

TEST(SequenceParallel, CheckpointsMoveBetweenDegrees) {
  const DecoderRun alone{.model = kGpt2Sequence};
  const DecoderRun halves{.model = kGpt2Sequence, .sequence = 2, .stage = 2};
  const DecoderRun quarters{.model = kGpt2Sequence, .sequence = 4, .stage = 3};
  const DecoderRun slices{.model = kGpt2Sequence, .tensor = 2, .stage = 3};
  auto through = RunDecoder(alone, 1, 4).steps;
  through.erase(through.begin(), through.begin() + 2);
  ExpectTheSame(through, GoOnFromCheckpoint(halves, 4, alone, 1));
  ExpectTheSame(through, GoOnFromCheckpoint(alone, 1, quarters, 4));
  ExpectTheSame(through, GoOnFromCheckpoint(quarters, 4, slices, 2));
}

// A number says where it stands: token, head, place in the head.
TEST(SequenceParallel, ATokensHeadsGoToTheRanksThatHaveThem) {
  constexpr std::int64_t kTokens = 6, kHeads = 5, kWidth = 2;
  testing::RunRanks(3, [&](comm::Communicator& world) {
    const sequence_parallel::Group group(world);
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

TEST(SequenceParallel, ASampleThatHasNoEqualPartsIsRefused) {
  testing::RunRanks(2, [](comm::Communicator& world) {
    const auto engine = MakeDecoderEngine({.model = kLlamaSequence, .sequence = 2}, world);
    const at::Tensor odd = at::zeros({1, 5}, at::kLong);
    EXPECT_THROW(engine->forward({.batch = {{"tokens", odd}, {"labels", odd}}}), c10::Error);
  });
}

}  // namespace
}  // namespace ds::tests
