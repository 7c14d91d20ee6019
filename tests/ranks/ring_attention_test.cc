// Attention in a ring gives what attention over whole samples gives, and decoders whose sequence
// ranks pass keys and values round train to what one rank trains: every ZeRO stage, any number of
// heads, and everything that a token may see. Sums have another order than one rank's.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "runtime/parallel/sequence/ring_attention.h"
#include "tests/ranks/decoder_run.h"
#include "tests/ranks/latent_decoder.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using kernels::AttentionRule;
using kernels::BlockRanges;
using sequence_parallel::SequenceKind;
using sequence_parallel::TokenRange;

constexpr char kThreeHeads[] = R"({"model_type":"llama","vocab_size":48,"hidden_size":24,
    "intermediate_size":42,"num_hidden_layers":2,"num_attention_heads":3,"num_key_value_heads":1,
    "max_position_embeddings":16,"attention_dropout":0.1})";
// Every second layer has a window of four; scores are bent.
constexpr char kBentScores[] = R"({"model_type":"gemma2","vocab_size":48,"hidden_size":24,
    "intermediate_size":42,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
    "head_dim":6,"max_position_embeddings":16,"sliding_window":4,"attn_logit_softcapping":5.0,
    "final_logit_softcapping":10.0,"query_pre_attn_scalar":6})";

DecoderRun InRing(const char* model, int ranks) {
  return {.model = model, .sequence = ranks, .sequence_kind = SequenceKind::kRing};
}

struct Attended {
  at::Tensor values, of_q, of_k, of_v;
};

at::Tensor Draw(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed));
}

// By operators over all tokens, with what the rule adds and multiplies by, in fp64.
Attended AttendAtOnce(at::Tensor q, at::Tensor k, at::Tensor v, const AttentionRule& rule) {
  for (at::Tensor* const each : {&q, &k, &v}) *each = each->to(at::kDouble).requires_grad_();
  const std::int64_t shared_by = q.size(1) / k.size(1), tokens = q.size(2);
  const at::Tensor keys = k.repeat_interleave(shared_by, 1),
                   mixed = v.repeat_interleave(shared_by, 1);
  at::Tensor scores = q.matmul(keys.transpose(2, 3)) * rule.scale;
  if (rule.soft_cap > 0.0) scores = (scores / rule.soft_cap).tanh() * rule.soft_cap;
  at::Tensor unseen = at::ones({tokens, tokens}, at::kBool).triu(1);
  if (rule.documents) {
    const at::Tensor numbers = rule.documents->numbers().unsqueeze(1);
    unseen = unseen.logical_or(numbers.unsqueeze(3).ne(numbers.unsqueeze(2)));
  }
  if (rule.key_terms.defined()) scores = scores + rule.key_terms.unsqueeze(1);
  if (rule.window > 0) {
    unseen = unseen.logical_or(at::ones({tokens, tokens}, at::kBool).tril(-rule.window));
  }
  at::Tensor weights =
      scores.masked_fill(unseen, -std::numeric_limits<double>::infinity()).softmax(-1);
  if (rule.factors) weights = weights * rule.factors({{0, tokens}, {0, tokens}, {0, q.size(0)}});
  const at::Tensor values = weights.matmul(mixed);
  (values * values).sum().backward();
  return {values.detach(), q.grad(), k.grad(), v.grad()};
}

// The rank's tokens of a tensor over all of them, along dimension 2.
at::Tensor OwnOf(const at::Tensor& all, const std::vector<TokenRange>& own) {
  std::vector<at::Tensor> parts;
  for (const TokenRange& range : own) parts.push_back(all.narrow(2, range.first, range.count));
  return at::cat(parts, 2);
}

void ExpectRingGivesThat(const Attended& full, const at::Tensor& q, const at::Tensor& k,
                         const at::Tensor& v, const AttentionRule& rule, int ranks) {
  testing::RunRanks(ranks, [&](comm::Communicator& world) {
    const sequence_parallel::SequenceGroup group(world, SequenceKind::kRing);
    const auto own = FindTokens(SequenceKind::kRing, q.size(2), world.rank(), ranks);
    const at::Tensor own_q = OwnOf(q, own).requires_grad_(), own_k = OwnOf(k, own).requires_grad_(),
                     own_v = OwnOf(v, own).requires_grad_();
    const at::Tensor values = RingAttention(group, own_q, own_k, own_v, rule);
    (values * values).sum().backward();
    const auto expect_near = [&](const at::Tensor& ours, const at::Tensor& all, const char* what) {
      const at::Tensor expected = OwnOf(all, own);
      const auto most = expected.abs().max().item<double>();
      EXPECT_LT((ours - expected).abs().max().item<double>(), 2e-6 * std::max(1.0, most))
          << what << " of rank " << world.rank() << " of " << ranks;
    };
    expect_near(values, full.values, "values");
    expect_near(own_q.grad(), full.of_q, "gradient of queries");
    expect_near(own_k.grad(), full.of_k, "gradient of keys");
    expect_near(own_v.grad(), full.of_v, "gradient of values");
  });
}

void ExpectRingsGiveWhatOneRankGives(std::int64_t heads, std::int64_t kv_heads, std::int64_t tokens,
                                     const AttentionRule& rule) {
  const at::Tensor q = Draw({2, heads, tokens, 8}, 1), k = Draw({2, kv_heads, tokens, 8}, 2),
                   v = Draw({2, kv_heads, tokens, 8}, 3);
  const Attended full = AttendAtOnce(q, k, v, rule);
  for (const int ranks : {2, 3, 4, 8}) ExpectRingGivesThat(full, q, k, v, rule, ranks);
}

// 24 tokens on 8 ranks are stretches of two and one.
TEST(RingAttention, MatchesAttentionOverFullSamples) {
  ExpectRingsGiveWhatOneRankGives(4, 4, 24, {.scale = 0.4});
  ExpectRingsGiveWhatOneRankGives(6, 2, 48, {.scale = 0.3});
  ExpectRingsGiveWhatOneRankGives(5, 1, 24, {.scale = 0.3});
  ExpectRingsGiveWhatOneRankGives(3, 3, 4 * 8 * 3, {.scale = 0.3});
}

TEST(RingAttention, ARankMayHaveOneToken) {
  const at::Tensor q = Draw({1, 2, 3, 8}, 1), k = Draw({1, 2, 3, 8}, 2), v = Draw({1, 2, 3, 8}, 3);
  for (const AttentionRule& rule : {AttentionRule{.scale = 0.4}, AttentionRule{.window = 2}}) {
    ExpectRingGivesThat(AttendAtOnce(q, k, v, rule), q, k, v, rule, 3);
  }
}

// Some blocks show a query nothing, its first one among them.
TEST(RingAttention, HonoursTheMaskOfATokensWindow) {
  // Documents of five tokens in the first sample, and of seven in the second.
  const auto documents = [](std::int64_t tokens) {
    const at::Tensor positions = at::arange(tokens);
    return std::make_shared<const kernels::SampleDocuments>(
        at::stack({positions.floor_divide(5), positions.floor_divide(7)}));
  };
  const AttentionRule::Between factors = [](const BlockRanges& ranges) {
    const auto& [queries, keys, samples] = ranges;
    const at::Tensor positions = at::arange(queries.first, queries.end()).unsqueeze(1) * 7 +
                                 at::arange(keys.first, keys.end()) * 3;
    return positions.remainder(4).ne(0).to(at::kFloat).mul(4.0 / 3.0).unsqueeze(0).unsqueeze(0);
  };
  ExpectRingsGiveWhatOneRankGives(4, 2, 24, {.scale = 0.4, .documents = documents(24)});
  ExpectRingsGiveWhatOneRankGives(4, 2, 24, {.scale = 0.4, .window = 3});
  ExpectRingsGiveWhatOneRankGives(
      4, 2, 24,
      {.scale = 0.4,
       .key_terms = at::arange(1, 5, at::kDouble).mul(0.1).unsqueeze(1) * at::arange(24)});
  ExpectRingsGiveWhatOneRankGives(4, 2, 24, {.scale = 0.4, .soft_cap = 0.7});
  ExpectRingsGiveWhatOneRankGives(4, 2, 24, {.scale = 0.4, .factors = factors});
  ExpectRingsGiveWhatOneRankGives(
      6, 3, 48,
      {.scale = 0.4, .soft_cap = 2.0, .window = 7, .documents = documents(48), .factors = factors});
}

// Of every five labels one is ignored, so that the parts of a sample count differently.
TEST(RingAttention, EveryStageMatchesOneRank) {
  for (const char* model : {kDroppingDecoder, kLlamaDecoder}) {
    const auto alone = RunDecoder({.model = model}, 1, kTrainedSteps);
    for (int stage = 0; stage <= 3; ++stage) {
      for (const std::int64_t accumulation : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} stage {} accumulation {}", model, stage, accumulation));
        DecoderRun run = InRing(model, 2);
        run.stage = stage;
        run.accumulation = accumulation;
        const auto ours = RunDecoder(run, /*ranks=*/4, kTrainedSteps);
        ExpectSameSteps(alone.steps, ours.steps);
      }
    }
  }
}

TEST(RingAttention, EveryStageTrainsInBf16) {
  const auto alone = RunDecoder({.model = kLlamaDecoder, .bf16 = true}, 1, kTrainedSteps).steps;
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    DecoderRun run = InRing(kLlamaDecoder, 2);
    run.stage = stage;
    run.bf16 = true;
    ExpectSameSteps(alone, RunDecoder(run, 4, kTrainedSteps).steps, {.loss = 2e-2, .norm = 0.08});
  }
}

// Ulysses refuses four of these.
TEST(RingAttention, AnyNumberOfHeadsGoesWithAnyNumberOfRanks) {
  const std::pair<const char*, int> splits[] = {
      {kThreeHeads, 2},      {kThreeHeads, 4},       {kThreeHeads, 6},
      {kWindowedDecoder, 6}, {kDistancesDecoder, 4}, {kBentScores, 4},
      {kBentScores, 2},      {kLatentDecoder, 2},    {kLatentDecoder, 3}};
  for (const auto& [model, sequence] : splits) {
    SCOPED_TRACE(fmt::format("{} on {}", model, sequence));
    const auto alone = RunDecoder({.model = model}, 1, kTrainedSteps).steps;
    DecoderRun run = InRing(model, sequence);
    run.stage = 3;
    ExpectSameSteps(alone, RunDecoder(run, sequence, kTrainedSteps).steps);
  }
}

TEST(RingAttention, EvaluationCountsTheLabelsOfAllParts) {
  const auto alone = EvaluateDecoder({.model = kDroppingDecoder}, 1);
  DecoderRun run = InRing(kDroppingDecoder, 2);
  run.accumulation = 2;
  const auto split = EvaluateDecoder(run, /*ranks=*/4);
  EXPECT_NEAR(split.loss, alone.loss, 1e-5);
  EXPECT_EQ(split.labels, alone.labels);
  EXPECT_EQ(split.accuracy, alone.accuracy);
}

// Parts begin and end inside documents.
TEST(RingAttention, PackedDocumentsReachOverParts) {
  for (const char* model : {kDroppingDecoder, kLlamaDecoder}) {
    SCOPED_TRACE(model);
    const auto alone = RunDecoder({.model = model, .packed = true}, 1, kTrainedSteps).steps;
    DecoderRun run = InRing(model, 4);
    run.stage = 1;
    run.packed = true;
    ExpectSameSteps(alone, RunDecoder(run, 4, kTrainedSteps).steps);
  }
}

TEST(RingAttention, GoesWithTensorRanksStagesAndRecompute) {
  using Kind = config::RecomputeChoice::Kind;
  for (const char* model : {kDroppingDecoder, kLlamaDecoder}) {
    const auto alone = RunDecoder({.model = model, .accumulation = 2}, 1, kTrainedSteps).steps;
    for (const Kind kind : {Kind::kNone, Kind::kBlocks, Kind::kAttention}) {
      SCOPED_TRACE(fmt::format("{} recompute {}", model, static_cast<int>(kind)));
      DecoderRun run = InRing(model, 2);
      run.accumulation = 2;
      run.recompute = {.kind = kind};
      run.tensor = 2;
      run.stage = 2;
      ExpectSameSteps(alone, RunDecoder(run, 8, kTrainedSteps).steps);
      run.tensor = 1;
      run.pipeline = 2;
      run.stage = 3;
      ExpectSameSteps(alone, RunDecoder(run, 4, kTrainedSteps).steps);
    }
  }
}

TEST(RingAttention, CheckpointsMoveBetweenKinds) {
  const DecoderRun alone{.model = kDroppingDecoder};
  DecoderRun ring = InRing(kDroppingDecoder, 4);
  ring.stage = 3;
  DecoderRun heads{.model = kDroppingDecoder, .sequence = 2, .stage = 2};
  auto through = RunDecoder(alone, 1, 4).steps;
  through.erase(through.begin(), through.begin() + 2);
  ExpectSameSteps(through, GoOnFromCheckpoint(ring, 4, heads, 4));
  ExpectSameSteps(through, GoOnFromCheckpoint(heads, 4, ring, 4));
}

}  // namespace
}  // namespace ds::tests
