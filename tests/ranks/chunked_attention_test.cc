// Chunked attention gives what attention over full samples gives, and the same gradients of
// its input and of the weights around it: for every chunk size, rule and place where what waits
// does, and on ranks that have the tokens between them.

#include "runtime/parallel/sequence/chunked_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "runtime/comm/communicator.h"
#include "runtime/device/autocast_scope.h"
#include "runtime/offload/file_tier.h"
#include "runtime/parallel/sequence/group.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using namespace sequence_parallel;  // NOLINT: what is tested
using namespace kernels;            // NOLINT: its parts

constexpr std::int64_t kSamples = 2, kTokens = 12, kHeads = 4, kKeyHeads = 2, kHeadWidth = 6;
constexpr std::int64_t kQueryWidth = kHeads * kHeadWidth, kKeyWidth = kKeyHeads * kHeadWidth;

// The same numbers for every world: of one element a function of its place and `seed`.
at::Tensor Numbers(at::IntArrayRef shape, std::int64_t seed) {
  const at::Tensor positions = at::arange(c10::multiply_integers(shape), at::kLong);
  const at::Tensor mixed =
      (positions * positions * 31 + positions * (17 + seed) + seed).remainder(97);
  return (mixed.to(at::kFloat) / 97.0 - 0.5).view(shape);
}

struct Layer {
  at::Tensor q = Numbers({kQueryWidth, kQueryWidth}, 1), k = Numbers({kQueryWidth, kKeyWidth}, 2);
  at::Tensor v = Numbers({kQueryWidth, kKeyWidth}, 3), o = Numbers({kQueryWidth, kQueryWidth}, 4);

  std::vector<at::Tensor> weights() const { return {q, k, v, o}; }
  void Train() const {
    for (const at::Tensor& weight : weights()) weight.set_requires_grad(true);
  }
};

at::Tensor OfHeads(const at::Tensor& x) {
  return x.unflatten(-1, {-1, kHeadWidth}).transpose(1, 2);
}

// [1, 1, queries, keys]: factors that drop some.
at::Tensor Factors(const BlockRanges& ranges) {
  const auto& [queries, keys, samples] = ranges;
  const at::Tensor q = at::arange(queries.first, queries.end(), at::kLong).unsqueeze(1);
  const at::Tensor drawn = (q * 7 + at::arange(keys.first, keys.end(), at::kLong) * 5).remainder(4);
  return drawn.ne(0).to(at::kFloat).view({1, 1, queries.count, -1}) / 0.75;
}

at::Tensor AttendAtOnce(const at::Tensor& x, const Layer& layer, const AttentionRule& rule) {
  const at::Tensor q = OfHeads(x.matmul(layer.q));
  const auto keys = [](const at::Tensor& of) {
    return of.repeat_interleave(kHeads / kKeyHeads, 1);
  };
  const at::Tensor k = keys(OfHeads(x.matmul(layer.k))), v = keys(OfHeads(x.matmul(layer.v)));
  at::Tensor scores = q.matmul(k.transpose(2, 3)) * rule.scale;
  if (rule.soft_cap > 0.0) scores = (scores / rule.soft_cap).tanh() * rule.soft_cap;
  const TokenRange all{0, x.size(1)};
  if (rule.key_terms.defined()) scores = scores + rule.key_terms.unsqueeze(1).to(at::kFloat);
  at::Tensor seen = at::ones({all.count, all.count}, at::kBool).tril();
  if (rule.window > 0) seen = seen.triu(1 - rule.window);
  scores = scores.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity());
  at::Tensor weights = scores.softmax(-1);
  if (rule.factors) weights = weights * rule.factors({all, all, {0, x.size(0)}});
  return weights.matmul(v).transpose(1, 2).flatten(2).matmul(layer.o);
}

ChunkFunctions MakeParts(const Layer& layer, const SequenceGroup& group, int* runs = nullptr) {
  const auto shares = ShareHeads(kHeads, kKeyHeads, group.size()).value();
  const auto to_heads = [group](const at::Tensor& x, const std::vector<HeadRange>& of) {
    return group.TokensToHeads(x.unflatten(-1, {-1, kHeadWidth}), of).transpose(1, 2);
  };
  ChunkFunctions parts;
  parts.project = [=](const at::Tensor& x, const SequenceChunk&) {
    if (runs != nullptr) ++*runs;
    return Qkv{to_heads(x.matmul(layer.q), shares.queries),
               to_heads(x.matmul(layer.k), shares.keys), to_heads(x.matmul(layer.v), shares.keys)};
  };
  parts.finish = [=](const at::Tensor& mixed, const SequenceChunk&) {
    return group.HeadsToTokens(mixed.transpose(1, 2).flatten(2), shares.queries).matmul(layer.o);
  };
  return parts;
}

std::vector<std::pair<std::string, AttentionRule>> ListRules() {
  const AttentionRule plain{.scale = 0.4};
  std::vector<std::pair<std::string, AttentionRule>> rules(5, {"", plain});
  rules[0].first = "plain";
  rules[1] = {"window", {.scale = 0.4, .window = 5}};
  rules[2] = {"cap", {.scale = 0.4, .soft_cap = 1.5}};
  rules[3].first = "distances";
  rules[3].second.key_terms = at::arange(kTokens, at::kDouble).mul(0.1).unsqueeze(0);
  rules[4].first = "dropped";
  rules[4].second.factors = Factors;
  return rules;
}

// What a pass gives: the result, and the gradients of the input and the weights.
std::vector<at::Tensor> PassAtOnce(const AttentionRule& rule) {
  const Layer layer;
  layer.Train();
  const at::Tensor x = Numbers({kSamples, kTokens, kQueryWidth}, 5).requires_grad_();
  const at::Tensor y = AttendAtOnce(x, layer, rule);
  y.backward(Numbers({kSamples, kTokens, kQueryWidth}, 6));
  return {y.detach(), x.grad(), layer.q.grad(), layer.k.grad(), layer.v.grad(), layer.o.grad()};
}

at::Tensor TakeOwn(const at::Tensor& all, std::int64_t chunk, const SequenceGroup& group) {
  std::vector<at::Tensor> parts;
  for (const TokenRange& own :
       FindTokens(SequenceKind::kUlysses, kTokens, group.rank(), group.size(), chunk)) {
    parts.push_back(all.narrow(1, own.first, own.count));
  }
  return at::cat(parts, 1);
}

// Of this rank's tokens and, of weights, this rank's part of the sum.
std::vector<at::Tensor> RunInChunks(const AttentionRule& rule, std::int64_t chunk,
                                    const SequenceGroup& group = {},
                                    const activation::Keeper* keeper = nullptr) {
  const Layer layer;
  layer.Train();
  const at::Tensor x =
      TakeOwn(Numbers({kSamples, kTokens, kQueryWidth}, 5), chunk, group).requires_grad_();
  const at::Tensor y =
      AttendInChunks(x, ListChunks(kTokens, chunk, group.size()), MakeParts(layer, group), rule,
                     {.trains = true, .keeper = keeper});
  y.backward(TakeOwn(Numbers({kSamples, kTokens, kQueryWidth}, 6), chunk, group));
  return {y.detach(), x.grad(), layer.q.grad(), layer.k.grad(), layer.v.grad(), layer.o.grad()};
}

void ExpectClose(const std::vector<at::Tensor>& expected, const std::vector<at::Tensor>& ours) {
  ASSERT_EQ(expected.size(), ours.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(ours[i].allclose(expected[i], 1e-5, 1e-5))
        << i << " differs by " << (ours[i] - expected[i]).abs().max().item<float>();
  }
}

// A pass forward is under torch_autocast, one back is not: both have to find the same scores.
TEST(AttentionBlock, ComputesInFp32UnderAutocast) {
  const auto values = [](std::int64_t heads, std::int64_t seed) {
    return (Numbers({kSamples, heads, kTokens, kHeadWidth}, seed) * 8).to(at::kBFloat16);
  };
  const Qkv block{values(kHeads, 1), values(kKeyHeads, 2), values(kKeyHeads, 3)};
  const BlockRanges ranges{{0, kTokens}, {0, kTokens}, {0, kSamples}};
  const AttentionRule rule{.scale = 0.4, .window = 5};
  const Mixed alone = AttendByRule(block, ranges, rule);
  const precision::AutocastScope autocast(at::kBFloat16, at::kCPU);
  const Mixed mixed = AttendByRule(block, ranges, rule);
  EXPECT_TRUE(mixed.values.equal(alone.values));
  EXPECT_TRUE(mixed.log_sums.equal(alone.log_sums));
}

TEST(ChunkedAttention, MatchesFullSamples) {
  for (const auto& [name, rule] : ListRules()) {
    const auto full = PassAtOnce(rule);
    for (const std::int64_t chunk : {1, 3, 5, 11, 12, 50}) {
      SCOPED_TRACE(fmt::format("{} portion {}", name, chunk));
      ExpectClose(full, RunInChunks(rule, chunk));
    }
  }
}

TEST(ChunkedAttention, GivesItOnRanksThatHaveTheTokensBetweenThem) {
  for (const int ranks : {2, 4}) {
    for (const auto& [name, rule] : ListRules()) {
      const auto full = PassAtOnce(rule);
      for (const std::int64_t chunk : {4, 8}) {
        testing::RunRanks(ranks, [&, &name = name, &rule = rule](comm::Communicator& world) {
          SCOPED_TRACE(fmt::format("{} ranks {} portion {}", name, ranks, chunk));
          const SequenceGroup group(world);
          std::vector<at::Tensor> ours = RunInChunks(rule, chunk, group);
          for (std::size_t i = 2; i < ours.size(); ++i) {
            world.AllReduce(ours[i], comm::ReduceOp::kSum);
          }
          std::vector<at::Tensor> expected = full;
          for (const std::size_t i : {0, 1}) expected[i] = TakeOwn(expected[i], chunk, group);
          ExpectClose(expected, ours);
        });
      }
    }
  }
}

TEST(ChunkedAttention, IsTheSameBitForBitWhereverItWaits) {
  const testing::TemporaryFolder folder;
  const auto tier = *offload::FileTier::Open({.folders = {folder.path()}});
  const activation::Keeper file(activation::KeepIn::kFile, tier.get());
  const activation::Keeper host(activation::KeepIn::kHost);
  for (const auto& [name, rule] : ListRules()) {
    SCOPED_TRACE(name);
    const auto here = RunInChunks(rule, 5);
    for (const activation::Keeper* keeper : {&file, &host}) {
      const auto there = RunInChunks(rule, 5, {}, keeper);
      for (std::size_t i = 0; i < here.size(); ++i) EXPECT_TRUE(there[i].equal(here[i])) << i;
    }
  }
}

// Of several samples a chunk's rows lie apart: one copy serves all products, which may keep it.
TEST(ChunkedAttention, ProjectsAdjacentRows) {
  const Layer layer;
  ChunkFunctions parts = MakeParts(layer, {});
  std::vector<bool> dense;
  parts.project = [&, project = parts.project](const at::Tensor& x, const SequenceChunk& chunk) {
    dense.push_back(x.is_contiguous());
    return project(x, chunk);
  };
  const at::Tensor x = Numbers({kSamples, kTokens, kQueryWidth}, 5).requires_grad_();
  AttendInChunks(x, ListChunks(kTokens, 5, 1), parts, {.scale = 0.4}, {}).sum().backward();
  EXPECT_EQ(dense, std::vector<bool>(6, true)) << "three portions, forward and back";
}

// A chunk that attends to no other does not touch them.
TEST(ChunkedAttention, AttendsOnlyToChunksWithTheSameDocument) {
  const AttentionRule rule{.scale = 0.4};
  AttentionRule divided = rule;
  divided.documents = std::make_shared<const SampleDocuments>(
      at::arange(kTokens).floor_divide(4).expand({kSamples, -1}));
  const Layer layer;
  const at::Tensor x = Numbers({kSamples, kTokens, kQueryWidth}, 5);
  const auto apart =
      AttendInChunks(x, ListChunks(kTokens, 4, 1), MakeParts(layer, {}), divided, {});
  for (std::int64_t first = 0; first < kTokens; first += 4) {
    const at::Tensor alone = AttendAtOnce(x.narrow(1, first, 4), layer, rule);
    EXPECT_TRUE(apart.narrow(1, first, 4).allclose(alone, 1e-5, 1e-5));
  }
}

TEST(ChunkedAttention, OfFrozenPartsTrainsTheRest) {
  const AttentionRule rule{.scale = 0.4};
  const auto full = PassAtOnce(rule);
  const Layer layer;
  layer.o.set_requires_grad(true);  // alone, and the input has no gradient either
  const at::Tensor x = Numbers({kSamples, kTokens, kQueryWidth}, 5);
  const at::Tensor y =
      AttendInChunks(x, ListChunks(kTokens, 5, 1), MakeParts(layer, {}), rule, {.trains = true});
  y.backward(Numbers({kSamples, kTokens, kQueryWidth}, 6));
  EXPECT_TRUE(layer.o.grad().allclose(full[5], 1e-5, 1e-5));
  EXPECT_FALSE(layer.q.grad().defined());
}

TEST(ChunkedAttention, ComputesProjectionsAgainOnlyWhereGradientsAreRecorded) {
  const Layer layer;
  const at::Tensor x = Numbers({kSamples, kTokens, kQueryWidth}, 5);
  int runs = 0;
  const auto attend = [&](bool trains) {
    return AttendInChunks(x, ListChunks(kTokens, 4, 1), MakeParts(layer, {}, &runs), {.scale = 0.4},
                          {.trains = trains});
  };
  EXPECT_FALSE(attend(false).requires_grad());
  EXPECT_EQ(runs, 3);
  layer.Train();
  const at::Tensor y = attend(true);
  EXPECT_EQ(runs, 6);
  y.sum().backward({}, /*retain_graph=*/true);
  EXPECT_EQ(runs, 9);
  EXPECT_THROW(y.sum().backward(), c10::Error) << "what waited is gone";
}

}  // namespace
}  // namespace ds::tests
