#include "runtime/engine/loop/train_loop.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

namespace ds::engine {
namespace {

at::Tensor Draw(std::uint64_t seed) {
  SeedGenerators(seed);
  return at::randn({3});
}

TEST(SeedGenerators, TakesEveryBitOfTheSeed) {
  const at::Tensor first = Draw(7);
  EXPECT_TRUE(at::equal(first, Draw(7)));
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_FALSE(at::equal(first, Draw(7 ^ (std::uint64_t{1} << bit)))) << bit;
  }
}

}  // namespace
}  // namespace ds::engine
