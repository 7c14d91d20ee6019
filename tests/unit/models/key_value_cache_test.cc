// A model that keeps keys and values computes what it computes without: every family's logits,
// token by token, of samples of unequal lengths side by side.

#include "runtime/models/layers/key_value_cache.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/models/golden_folder.h"

namespace ds::models {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kCachedSamples = 3;
constexpr std::int64_t kBegin[kCachedSamples] = {4, 11, 19};  // tokens of the first pass
constexpr std::int64_t kPasses = 6;

at::Tensor LogitsOf(const BlockList& model, const at::Tensor& tokens) {
  return RunBlocks(model, {.batch = {{"tokens", tokens}}}).extras.at("logits");
}

class CacheTest : public ::testing::TestWithParam<std::string> {
 protected:
  void Load(at::ScalarType dtype) {
    const std::string name = "families/" + GetParam();
    spec_ = ReadModelConfig((GoldenFolder() / name).string()).value().decoder;
    model_ = LoadGoldenModel(name, dtype);
    for (const auto& block : model_->blocks()) block->eval();
    tokens_ = GoldenBatch(ReadGolden(name), kCachedSamples).batch.at("tokens");
    cache_.emplace(spec_, KeyValueCache::Shape{.samples = kCachedSamples, .capacity = 32}, dtype);
  }
  // The logits of each sample's last token, of a pass that gives it so many.
  std::vector<at::Tensor> Pass(const std::vector<std::int64_t>& counts) {
    std::vector<std::int64_t> before = cache_->lengths();
    cache_->Extend(counts);
    at::Tensor tokens = at::zeros(cache_->positions().sizes(), at::kLong);
    for (std::int64_t i = 0; i < kCachedSamples; ++i) {
      const auto at = static_cast<std::size_t>(i);
      tokens[i].narrow(0, 0, counts[at]).copy_(tokens_[i].narrow(0, before[at], counts[at]));
    }
    const Bundle end = RunBlocks(
        *model_,
        {.batch = {{"tokens", tokens}, {"positions", cache_->positions()}}, .cache = &*cache_});
    std::vector<at::Tensor> logits;
    for (std::int64_t i = 0; i < kCachedSamples; ++i) {
      logits.push_back(end.extras.at("logits")[i][counts[static_cast<std::size_t>(i)] - 1]);
    }
    return logits;
  }
  // Runs token by token, and compares each time with one pass over the sample alone.
  void ExpectSameLogits(double tolerance) {
    const c10::NoGradGuard no_grad;
    std::vector<std::int64_t> counts(std::begin(kBegin), std::end(kBegin));
    for (std::int64_t pass = 0; pass < kPasses; ++pass) {
      const std::vector<at::Tensor> logits = Pass(counts);
      for (std::int64_t i = 0; i < kCachedSamples; ++i) {
        const std::int64_t length = cache_->lengths()[static_cast<std::size_t>(i)];
        ASSERT_EQ(length, kBegin[i] + pass);
        const at::Tensor expected =
            LogitsOf(*model_, tokens_[i].narrow(0, 0, length).unsqueeze(0))[0][-1];
        const double distance =
            (logits[static_cast<std::size_t>(i)] - expected).abs().max().item<double>();
        EXPECT_LE(distance, tolerance * expected.abs().max().item<double>())
            << "sample " << i << " of " << length << " tokens";
      }
      counts.assign(kCachedSamples, 1);
    }
  }

  DecoderSpec spec_;
  std::shared_ptr<BlockList> model_;
  at::Tensor tokens_;
  std::optional<KeyValueCache> cache_;
};

TEST_P(CacheTest, TokenByTokenTheLogitsAreThoseOfOnePass) {
  Load(at::kFloat);
  ExpectSameLogits(1e-5);
}

TEST_P(CacheTest, InBf16TheyAreAsNearAsItsPrecision) {
  Load(at::kBFloat16);
  ExpectSameLogits(0.05);
}

TEST_P(CacheTest, InFp16TheyAreAsNearAsItsPrecision) {
  Load(at::kHalf);
  ExpectSameLogits(0.01);
}

// What such a model keeps is of no use when a sample grows; `inference` begins anew then.
bool FollowsLength(const std::string& family) {
  const auto config = ReadModelConfig((GoldenFolder() / "families" / family).string());
  return DependsOnLength(config->decoder.rope);
}

std::vector<std::string> FamilyFolders() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenFolder() / "families")) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && !FollowsLength(name)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Families, CacheTest, ::testing::ValuesIn(FamilyFolders()),
                         [](const auto& info) { return info.param; });

DecoderSpec SmallSpec() {
  DecoderSpec spec;
  spec.layers = 1;
  spec.kv_heads = 1;
  spec.head_width = 2;
  return spec;
}

TEST(KeyValueCacheTest, TokensAreAtTheirPositionsAndPaddingIsOverwritten) {
  KeyValueCache cache(SmallSpec(), {.samples = 2, .capacity = 4}, at::kFloat);
  cache.Extend({3, 1});
  EXPECT_TRUE(cache.begins());
  EXPECT_EQ(cache.tokens(), 3);
  const at::Tensor first = at::arange(1, 7, at::kFloat).view({2, 1, 3, 1}).expand({2, 1, 3, 2});
  cache.Keep(0, first, first);
  cache.Extend({1, 1});
  EXPECT_FALSE(cache.begins());
  EXPECT_THAT(cache.lengths(), ElementsAre(4, 2));
  EXPECT_EQ(cache.positions()[0][0].item<int>(), 3);
  EXPECT_EQ(cache.positions()[1][0].item<int>(), 1);
  const at::Tensor next = at::full({2, 1, 1, 2}, 9.0);
  const auto [keys, values] = cache.Keep(0, next, -next);
  EXPECT_EQ(keys.size(2), 4);
  EXPECT_EQ(keys[0][0][3][0].item<float>(), 9.0F);
  EXPECT_EQ(keys[1][0][0][0].item<float>(), 4.0F);
  EXPECT_EQ(keys[1][0][1][1].item<float>(), 9.0F);
  EXPECT_EQ(values[1][0][1][1].item<float>(), -9.0F);
}

TEST(KeyValueCacheTest, SamplesLeaveAndOthersContinue) {
  KeyValueCache cache(SmallSpec(), {.samples = 3, .capacity = 2}, at::kFloat);
  cache.Extend({1, 1, 1});
  const at::Tensor rows = at::arange(3, at::kFloat).view({3, 1, 1, 1}).expand({3, 1, 1, 2});
  cache.Keep(0, rows, rows);
  cache.Select({2});
  cache.Extend({1});
  EXPECT_THAT(cache.lengths(), ElementsAre(2));
  const auto [keys, values] = cache.Keep(0, at::full({1, 1, 1, 2}, 7.0), at::zeros({1, 1, 1, 2}));
  EXPECT_EQ(keys[0][0][0][0].item<float>(), 2.0F);
  EXPECT_EQ(keys[0][0][1][0].item<float>(), 7.0F);
  EXPECT_EQ(values[0][0][0][0].item<float>(), 2.0F);
}

TEST(KeyValueCacheTest, RefusesTokensThatDoNotFit) {
  KeyValueCache cache(SmallSpec(), {.samples = 1, .capacity = 2}, at::kFloat);
  EXPECT_THROW(cache.Extend({3}), c10::Error);
  EXPECT_THROW(cache.Extend({1, 1}), c10::Error);
  cache.Extend({2});
  EXPECT_THROW(cache.Extend({1}), c10::Error);
}

}  // namespace
}  // namespace ds::models
