// Attention by blocks gives what attention over all pairs of tokens gives, in values and gradients,
// for every rule; and it computes no more blocks than the rule shows.

#include "runtime/device/kernels/attention.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>
#include <string>

#include "runtime/device/autocast_scope.h"

namespace ds::kernels {
namespace {

struct Shape {
  std::int64_t samples = 2, heads = 4, key_heads = 2, tokens = 9, width = 8, value_width = 8;
};

struct Attended {
  at::Tensor values, of_q, of_k, of_v;
};

at::Tensor Draw(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed));
}

// Documents of 1, 2, 3, ... tokens in the first sample, and of `length` tokens in the others.
std::shared_ptr<const SampleDocuments> Divide(const Shape& shape, std::int64_t length) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t sample = 0; sample < shape.samples; ++sample) {
    for (std::int64_t token = 0, document = 0, end = 1; token < shape.tokens; ++token) {
      if (token == end) end += ++document + 1;
      numbers.push_back(sample == 0 ? document : token / length);
    }
  }
  return std::make_shared<const SampleDocuments>(
      at::tensor(numbers).view({shape.samples, shape.tokens}));
}

at::Tensor Slopes(const Shape& shape) {
  return at::arange(1, shape.heads + 1, at::kDouble).mul(0.21).unsqueeze(1) *
         at::arange(shape.tokens, at::kDouble);
}

// Drops a quarter of the weights, others in each sample.
at::Tensor Factors(const BlockRanges& ranges) {
  const at::Tensor drawn =
      at::arange(ranges.samples.first, ranges.samples.end()).view({-1, 1, 1, 1}) * 11 +
      at::arange(ranges.queries.first, ranges.queries.end()).view({-1, 1}) * 7 +
      at::arange(ranges.keys.first, ranges.keys.end()) * 5;
  return drawn.remainder(4).ne(0).to(at::kFloat) / 0.75;
}

std::vector<std::pair<std::string, AttentionRule>> ListRules(const Shape& shape) {
  std::vector<std::pair<std::string, AttentionRule>> rules{
      {"scale", {.scale = 0.4}},
      {"window", {.scale = 0.4, .window = 3}},
      {"wide window", {.scale = 0.4, .window = 150}},
      {"documents", {.scale = 0.4, .documents = Divide(shape, 5)}},
      {"long documents", {.scale = 0.4, .documents = Divide(shape, 290)}},
      {"terms", {.scale = 0.4, .key_terms = Slopes(shape)}},
      {"cap", {.scale = 0.4, .soft_cap = 0.7}},
      {"dropout", {.scale = 0.4, .factors = Factors}}};
  rules.emplace_back("documents and window",
                     AttentionRule{.scale = 0.4, .window = 4, .documents = Divide(shape, 290)});
  rules.emplace_back(
      "documents and terms",
      AttentionRule{.scale = 0.4, .documents = Divide(shape, 290), .key_terms = Slopes(shape)});
  rules.emplace_back("window and terms",
                     AttentionRule{.scale = 0.4, .window = 70, .key_terms = Slopes(shape)});
  rules.emplace_back("all", AttentionRule{.scale = 0.4,
                                          .soft_cap = 2.0,
                                          .window = 6,
                                          .documents = Divide(shape, 29),
                                          .key_terms = Slopes(shape),
                                          .factors = Factors});
  return rules;
}

// Over all pairs of tokens, in fp64, by operators that LibTorch differentiates.
at::Tensor AttendToPairs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionRule& rule) {
  const std::int64_t shared_by = q.size(1) / k.size(1), tokens = q.size(2);
  at::Tensor scores = q.matmul(k.repeat_interleave(shared_by, 1).transpose(2, 3)) * rule.scale;
  if (rule.soft_cap > 0.0) scores = (scores / rule.soft_cap).tanh() * rule.soft_cap;
  if (rule.key_terms.defined()) scores = scores + rule.key_terms.unsqueeze(1);
  at::Tensor unseen = at::ones({tokens, tokens}, at::kBool).triu(1);
  if (rule.window > 0) {
    unseen = unseen.logical_or(at::ones({tokens, tokens}, at::kBool).tril(-rule.window));
  }
  if (rule.documents) {
    const at::Tensor numbers = rule.documents->numbers().unsqueeze(1);
    unseen = unseen.logical_or(numbers.unsqueeze(3).ne(numbers.unsqueeze(2)));
  }
  at::Tensor weights =
      scores.masked_fill(unseen, -std::numeric_limits<double>::infinity()).softmax(-1);
  if (rule.factors) weights = weights * rule.factors({{0, tokens}, {0, tokens}, {0, q.size(0)}});
  return weights.matmul(v.repeat_interleave(shared_by, 1));
}

template <typename Function>
Attended Pass(const Shape& shape, at::ScalarType type, const Function& attend) {
  // As layers pass them: heads and tokens exchanged.
  const auto draw = [&](std::int64_t heads, std::int64_t width, std::uint64_t seed) {
    return Draw({shape.samples, shape.tokens, heads, width}, seed)
        .to(at::kBFloat16)
        .to(type)
        .transpose(1, 2)
        .requires_grad_();
  };
  const at::Tensor q = draw(shape.heads, shape.width, 1), k = draw(shape.key_heads, shape.width, 2),
                   v = draw(shape.key_heads, shape.value_width, 3);
  const at::Tensor values = attend(q, k, v);
  const at::Tensor upstream = Draw(values.sizes(), 4).to(at::kBFloat16).to(type);
  values.backward(upstream);
  return {values.detach(), q.grad(), k.grad(), v.grad()};
}

void ExpectNear(const at::Tensor& ours, const at::Tensor& expected, double error,
                const char* what) {
  const double most = std::max(1.0, expected.abs().max().item<double>());
  EXPECT_LT((ours.to(at::kDouble) - expected).abs().max().item<double>(), error * most) << what;
}

using NamedRules = std::vector<std::pair<std::string, AttentionRule>>;

void ExpectMatchesPairs(const Shape& shape, const NamedRules& rules, at::ScalarType type,
                        double error) {
  for (const auto& [name, rule] : rules) {
    SCOPED_TRACE(fmt::format("{}, {} tokens, {}", name, shape.tokens, c10::toString(type)));
    const auto expected = Pass(
        shape, at::kDouble, [&rule = rule](auto&... qkv) { return AttendToPairs(qkv..., rule); });
    const auto ours =
        Pass(shape, type, [&rule = rule](auto&... qkv) { return Attend(qkv..., rule); });
    EXPECT_EQ(ours.values.scalar_type(), type);
    ExpectNear(ours.values, expected.values, error, "values");
    ExpectNear(ours.of_q, expected.of_q, error, "gradient of queries");
    ExpectNear(ours.of_k, expected.of_k, error, "gradient of keys");
    ExpectNear(ours.of_v, expected.of_v, error, "gradient of values");
  }
}

void ExpectMatchesPairs(const Shape& shape, at::ScalarType type, double error) {
  ExpectMatchesPairs(shape, ListRules(shape), type, error);
}

TEST(Attend, MatchesAllPairsInFp32) {
  for (const std::int64_t tokens : {1, 2, 9, 300}) {
    ExpectMatchesPairs({.tokens = tokens}, at::kFloat, 3e-6);
  }
  ExpectMatchesPairs({.samples = 1, .heads = 1, .key_heads = 1, .tokens = 530}, at::kFloat, 3e-6);
  // A masked block of more keys than the CPU's kernel takes at once.
  ExpectMatchesPairs({.samples = 1, .heads = 2, .key_heads = 1, .tokens = 1300},
                     {{"window", {.scale = 0.4, .window = 700}}}, at::kFloat, 3e-6);
  ExpectMatchesPairs(
      {.samples = 1, .heads = 3, .key_heads = 3, .tokens = 70, .width = 7, .value_width = 7},
      at::kFloat, 3e-6);
  ExpectMatchesPairs({.heads = 5, .key_heads = 1, .tokens = 270, .width = 24, .value_width = 16},
                     at::kFloat, 3e-6);
}

TEST(Attend, MatchesAllPairsIn16Bits) {
  for (const std::int64_t tokens : {9, 300}) {
    ExpectMatchesPairs({.heads = 2, .key_heads = 1, .tokens = tokens}, at::kBFloat16, 2e-2);
    ExpectMatchesPairs({.heads = 2, .key_heads = 1, .tokens = tokens}, at::kHalf, 3e-3);
  }
}

// Terms of distant tokens are large. Those of near ones, which count, keep their digits.
TEST(Attend, DistancesAreAsExactAtTheEndOfALongSample) {
  const Shape shape{.samples = 1, .heads = 2, .key_heads = 2, .tokens = 3000};
  const AttentionRule near{.scale = 0.4, .key_terms = Slopes(shape)};
  AttentionRule far = near;
  far.key_terms = near.key_terms + 1e6;
  const auto attend = [&](const AttentionRule& rule) {
    return Pass(shape, at::kFloat, [&](auto&... qkv) { return Attend(qkv..., rule); }).values;
  };
  ExpectNear(attend(far), attend(near).to(at::kDouble), 1e-6, "values");
}

TEST(Attend, ComputesInTheDtypeOfAutocast) {
  const Shape shape;
  const AttentionRule rule{.scale = 0.4, .window = 3};
  const precision::AutocastScope autocast(at::kBFloat16, at::kCPU);
  const auto ours = Pass(shape, at::kFloat, [&](auto&... qkv) { return Attend(qkv..., rule); });
  EXPECT_EQ(ours.values.scalar_type(), at::kBFloat16);
  EXPECT_EQ(ours.of_q.scalar_type(), at::kFloat);
}

TEST(Attend, RefusesASecondDerivative) {
  const at::Tensor q = Draw({1, 1, 4, 8}, 1).requires_grad_();
  const at::Tensor values = Attend(q, q, q, {.window = 2});
  EXPECT_THROW(torch::autograd::grad({values.sum()}, {q}, {}, std::nullopt, /*create_graph=*/true),
               c10::Error);
}

TEST(Attend, RefusesDocumentsOfOtherSamples) {
  const at::Tensor q = Draw({2, 1, 4, 8}, 1);
  EXPECT_THROW(Attend(q, q, q, {.documents = Divide({.samples = 2, .tokens = 5}, 2)}), c10::Error);
  EXPECT_THROW(Attend(q, q, q, {.documents = Divide({.samples = 1, .tokens = 4}, 2)}), c10::Error);
  EXPECT_THROW(Attend(q, q, q, {.key_terms = Slopes({.heads = 1, .tokens = 5})}), c10::Error);
}

// Every pair of tokens that see each other is in exactly one block.
TEST(ListBlocks, CoversWhatTheRuleShowsOnce) {
  const Shape shape{.tokens = 700};
  for (const auto& [name, rule] : ListRules(shape)) {
    for (const BlockKernel kernel :
         {BlockKernel::kWhole, BlockKernel::kTerms, BlockKernel::kByRule}) {
      SCOPED_TRACE(fmt::format("{} {}", name, static_cast<int>(kernel)));
      at::Tensor times = at::zeros({shape.samples, shape.tokens, shape.tokens}, at::kInt);
      for (const QueryBlocks& block : ListBlocks(rule, kernel, shape.samples, shape.tokens)) {
        for (const TokenRange& keys : block.keys) {
          times.narrow(0, block.samples.first, block.samples.count)
              .narrow(1, block.queries.first, block.queries.count)
              .narrow(2, keys.first, keys.count)
              .add_(1);
        }
      }
      at::Tensor seen = at::ones({shape.tokens, shape.tokens}, at::kBool).tril();
      if (rule.window > 0) seen = seen.triu(1 - rule.window);
      seen = seen.expand_as(times);
      if (rule.documents) {
        const at::Tensor numbers = rule.documents->numbers();
        seen = seen.logical_and(numbers.unsqueeze(2).eq(numbers.unsqueeze(1)));
      }
      EXPECT_TRUE(times.masked_select(seen).eq(1).all().item<bool>());
      EXPECT_LE(times.max().item<int>(), 1);
    }
  }
}

std::int64_t CountScores(const AttentionRule& rule, BlockKernel kernel, std::int64_t tokens) {
  std::int64_t scores = 0;
  for (const QueryBlocks& block : ListBlocks(rule, kernel, /*samples=*/1, tokens)) {
    for (const TokenRange& keys : block.keys) scores += block.queries.count * keys.count;
  }
  return scores;
}

TEST(ListBlocks, GrowsWithTheTokensAndNotWithTheirSquare) {
  for (const std::int64_t tokens : {4096, 32768}) {
    const AttentionRule window{.window = 256};
    const AttentionRule documents{.documents = std::make_shared<const SampleDocuments>(
                                      at::arange(tokens).floor_divide(128).unsqueeze(0))};
    for (const BlockKernel kernel :
         {BlockKernel::kWhole, BlockKernel::kTerms, BlockKernel::kByRule}) {
      EXPECT_LE(CountScores(window, kernel, tokens), tokens * 2 * 256);
      EXPECT_LE(CountScores(documents, kernel, tokens), tokens * 128);
    }
  }
}

TEST(SampleDocuments, AreRunsOfEqualNumbers) {
  const SampleDocuments documents(at::tensor({3, 3, 1, 1, 1, 7, 0, 0, 0, 0, 0, 0}).view({2, 6}));
  EXPECT_EQ(documents.Of(0), (std::vector<TokenRange>{{0, 2}, {2, 3}, {5, 1}}));
  EXPECT_EQ(documents.Of(1), (std::vector<TokenRange>{{0, 6}}));
  EXPECT_EQ(documents.longest(), 6);
  EXPECT_TRUE(documents.starts().equal(at::tensor({0, 2, 5, 6, 12}, at::kInt)));
}

TEST(SampleDocuments, RefusesADocumentInTwoPieces) {
  EXPECT_THROW(SampleDocuments(at::tensor({0, 0, 1, 1, 0}).view({1, 5})), c10::Error);
  EXPECT_NO_THROW(SampleDocuments(at::tensor({0, 0, 1, 1, 0, 1}).view({3, 2})));
}

TEST(SampleDocuments, ConnectRangesThatHaveOneInCommon) {
  const SampleDocuments documents(at::tensor({0, 0, 1, 1, 1, 2}).view({1, 6}));
  EXPECT_TRUE(documents.Connect({4, 2}, {0, 3}));
  EXPECT_FALSE(documents.Connect({5, 1}, {0, 5}));
  EXPECT_FALSE(documents.Connect({2, 2}, {0, 2}));
}

}  // namespace
}  // namespace ds::kernels
