#include "runtime/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

namespace ds::data {
namespace {

using ::testing::ElementsAre;

TEST(BlendTest, TwoSourcesAlternateByTheirWeights) {
  const double weights[] = {3.0, 1.0};
  const Blend blend(weights);
  std::vector<std::size_t> sources;
  for (std::int64_t position = 0; position < 8; ++position)
    sources.push_back(blend.At(position).source);
  EXPECT_THAT(sources, ElementsAre(0, 0, 1, 0, 0, 0, 1, 0));
}

TEST(BlendTest, WeightsMayBeAsLargeAndAsSmallAsNumbersAre) {
  for (const double size : {1e308, 4e-324}) {
    const double weights[] = {size, size, size, size};
    EXPECT_THAT(Blend(weights).Count(1000), ElementsAre(250, 250, 250, 250)) << size;
  }
  const double unlike[] = {1e308, 1e-300};
  EXPECT_THAT(Blend(unlike).Count(1000), ElementsAre(1000, 0));
}

TEST(BlendTest, OneSourceHasEveryPlace) {
  const double weights[] = {0.2};
  EXPECT_EQ(Blend(weights).At(41).source, 0u);
  EXPECT_EQ(Blend(weights).At(41).index, 41);
}

// The promise of the header, for weights of all kinds: each source's places are numbered without a
// gap, and after any number of places it has had its share of them.
TEST(BlendTest, EverySourceHasItsShareOfAnyStretch) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    std::vector<double> weights(1 + static_cast<std::size_t>(round) % 23);
    for (double& weight : weights) weight = std::exp(static_cast<double>(random() % 800) / 100.0);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const Blend blend(weights);
    std::vector<std::int64_t> counts(weights.size());
    for (std::int64_t position = 0; position < 3000; ++position) {
      const Blend::SourceSample at = blend.At(position);
      ASSERT_EQ(at.index, counts.at(at.source)++) << "place " << position;
      for (std::size_t i = 0; i < counts.size(); ++i) {
        const double share = weights[i] / sum * static_cast<double>(position + 1);
        ASSERT_LT(std::abs(static_cast<double>(counts[i]) - share), 2.0) << "place " << position;
      }
    }
    EXPECT_EQ(blend.Count(3000), counts);
  }
}

// A training of years is no further from its shares than one of minutes.
TEST(BlendTest, PlacesFarAwayAreExact) {
  const double weights[] = {0.999999, 1e-6, 1e-6};
  const Blend blend(weights);
  const std::int64_t far = std::int64_t{1} << 52;
  std::vector<std::int64_t> counts = blend.Count(far);
  for (std::int64_t position = far; position < far + 1000; ++position) {
    const Blend::SourceSample at = blend.At(position);
    ASSERT_EQ(at.index, counts.at(at.source)++);
  }
}

// What is read once from end to end (evaluation) is a blend by sizes.
TEST(BlendTest, SizesAsWeightsFillEverySourceOnce) {
  const double sizes[] = {1.0, 123456789.0, 777.0, 3.0};
  EXPECT_THAT(Blend(sizes).Count(123457570), ElementsAre(1, 123456789, 777, 3));
}

}  // namespace
}  // namespace ds::data
