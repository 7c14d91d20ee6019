#include "runtime/data/sampler.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace ds::data {
namespace {

std::vector<std::int64_t> Pass(Sampler& sampler, std::int64_t pass) {
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < sampler.samples(); ++i) {
    samples.push_back(sampler.At(pass * sampler.samples() + i));
  }
  return samples;
}

TEST(Permutation, IsOneForEverySize) {
  for (std::int64_t size : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4097}) {
    const Permutation permutation(size, 42);
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t element = permutation.At(i);
      EXPECT_GE(element, 0);
      EXPECT_LT(element, size);
      seen.insert(element);
    }
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), size);
  }
}

TEST(Permutation, IsFixedForEver) {
  // Saved runs continue in this order.
  const Permutation permutation(10, 7);
  std::vector<std::int64_t> elements;
  for (std::int64_t i = 0; i < 10; ++i) elements.push_back(permutation.At(i));
  EXPECT_EQ(elements, (std::vector<std::int64_t>{2, 7, 6, 8, 5, 4, 3, 0, 9, 1}));
}

TEST(Permutation, MovesElementsFarAndWide) {
  const std::int64_t size = 10000;
  const Permutation permutation(size, 1);
  double distance = 0;
  int neighbours = 0;
  for (std::int64_t i = 0; i + 1 < size; ++i) {
    distance += std::abs(static_cast<double>(permutation.At(i) - i));
    neighbours += permutation.At(i + 1) == permutation.At(i) + 1;
  }
  // A random permutation moves an element by a third of the size on average and keeps about one
  // pair of neighbours.
  EXPECT_NEAR(distance / static_cast<double>(size), static_cast<double>(size) / 3.0, 200.0);
  EXPECT_LT(neighbours, 10);
}

TEST(Sampler, UnshuffledIsTheOrderOfTheDataAgainAndAgain) {
  Sampler sampler(3, {.shuffle = false});
  EXPECT_EQ(Pass(sampler, 0), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(Pass(sampler, 5), (std::vector<std::int64_t>{0, 1, 2}));
}

TEST(Sampler, EveryPassHasAnOrderOfItsOwn) {
  Sampler sampler(100, {.shuffle = true, .seed = 3});
  const auto first = Pass(sampler, 0);
  const auto second = Pass(sampler, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set<std::int64_t>(first.begin(), first.end()).size(), 100U);
  EXPECT_EQ(std::set<std::int64_t>(second.begin(), second.end()).size(), 100U);
  EXPECT_EQ(Pass(sampler, 0), first) << "going back gives the same order";
}

TEST(Sampler, SeedDecidesTheOrder) {
  Sampler a(100, {.shuffle = true, .seed = 3}), b(100, {.shuffle = true, .seed = 3}),
      c(100, {.shuffle = true, .seed = 4});
  EXPECT_EQ(Pass(a, 0), Pass(b, 0));
  EXPECT_NE(Pass(a, 0), Pass(c, 0));
}

}  // namespace
}  // namespace ds::data
