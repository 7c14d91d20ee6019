#include "runtime/plan/zero/pool_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Of two units a layer each has parameters and gradients.
PoolSizes LayersAndATable() {
  PoolSizes sizes;
  for (int i = 0; i < 4; ++i) sizes.AddUser(10);
  for (int i = 0; i < 2; ++i) sizes.AddUser(100);
  return sizes;
}

TEST(PoolSizesTest, TwoBuffersOfASizeThatUnitsShareStay) {
  PoolSizes sizes = LayersAndATable();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(sizes.Take(10).is_idle);
  EXPECT_TRUE(sizes.Return(10));
  EXPECT_TRUE(sizes.Return(10));
  EXPECT_FALSE(sizes.Return(10));
  EXPECT_EQ(sizes.held_bytes(), 20);
  EXPECT_TRUE(sizes.Take(10).is_idle);
  EXPECT_EQ(sizes.held_bytes(), 20);
}

TEST(PoolSizesTest, ABufferOfOneUnitGoesWhenAnotherSizeNeedsMemory) {
  PoolSizes sizes = LayersAndATable();
  sizes.Take(100);
  sizes.Take(100);
  EXPECT_TRUE(sizes.Return(100));
  EXPECT_FALSE(sizes.Return(100)) << "one is enough";
  EXPECT_THAT(sizes.Take(10).freed, ElementsAre(100));
  EXPECT_EQ(sizes.held_bytes(), 10);
}

TEST(PoolSizesTest, KeepsSharedBuffersNextToOtherSizes) {
  PoolSizes sizes = LayersAndATable();
  sizes.Take(10);
  sizes.Return(10);
  EXPECT_THAT(sizes.Take(100).freed, IsEmpty());
  EXPECT_EQ(sizes.held_bytes(), 110);
  sizes.FreeIdle();
  EXPECT_EQ(sizes.held_bytes(), 100);
}

}  // namespace
}  // namespace ds::zero
