#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/plan/zero/flat_layout.h"

namespace ds::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(FlatLayoutTest, ParametersAndShardsBeginAtTheMultiple) {
  const FlatLayout layout({10, 3000, 5}, 3, {0, 2}, 2048);
  EXPECT_EQ(layout.parameter(1), (FlatRange{2048, 3000}));
  EXPECT_EQ(layout.parameter(2), (FlatRange{3 * 2048, 5}));
  EXPECT_EQ(layout.shard_numel(), 2 * 2048);
}

TEST(FlatLayout, AlignsParametersAndPadsToEqualShards) {
  const FlatLayout layout({10, 40, 32}, 3);
  EXPECT_EQ(layout.parameter(0), (FlatRange{0, 10}));
  EXPECT_EQ(layout.parameter(1), (FlatRange{32, 40}));
  EXPECT_EQ(layout.parameter(2), (FlatRange{96, 32}));
  EXPECT_EQ(layout.padded_numel(), 192);
  EXPECT_EQ(layout.shard_numel(), 64);
  EXPECT_EQ(layout.shard(2), (FlatRange{128, 64}));
  EXPECT_THAT(layout.gaps(), ElementsAre(FlatRange{10, 22}, FlatRange{72, 24}, FlatRange{128, 64}));
}

TEST(FlatLayout, PiecesAreTheOverlapsOfParametersWithARange) {
  const FlatLayout layout({10, 40, 32}, 3);
  EXPECT_THAT(layout.FindPieces(layout.shard(0)),
              ElementsAre(Piece{.parameter = 0, .count = 10},
                          Piece{.parameter = 1, .range_start = 32, .count = 32}));
  EXPECT_THAT(
      layout.FindPieces(layout.shard(1)),
      ElementsAre(Piece{.parameter = 1, .parameter_start = 32, .range_start = 0, .count = 8},
                  Piece{.parameter = 2, .parameter_start = 0, .range_start = 32, .count = 32}));
  EXPECT_THAT(layout.FindPieces(layout.shard(2)), IsEmpty()) << "padding only";
}

TEST(FlatLayout, RangesBeginWhereShardsMay) {
  const FlatLayout layout({10, 40, 32}, 3, {0, 1});
  EXPECT_EQ(layout.parameter(1), (FlatRange{64, 40}));
  EXPECT_EQ(layout.parameter(2), (FlatRange{128, 32})) << "does not begin one";
  EXPECT_THAT(layout.gaps(),
              ElementsAre(FlatRange{10, 54}, FlatRange{104, 24}, FlatRange{160, 32}));
}

TEST(FlatLayout, AShardHasSomeAllOrNothingOfARange) {
  const FlatLayout layout({10, 200, 32}, 2, {0, 1, 2});
  ASSERT_EQ(layout.shard_numel(), 192);
  const FlatRange first{0, 64}, second{64, 256}, third{320, 64};
  EXPECT_EQ(layout.shard_of(first, 0), first);
  EXPECT_EQ(layout.shard_of(first, 1), (FlatRange{192, 0}));
  EXPECT_EQ(layout.shard_of(second, 0), (FlatRange{64, 128}));
  EXPECT_EQ(layout.shard_of(second, 1), (FlatRange{192, 128}));
  EXPECT_EQ(layout.shard_of(third, 0), (FlatRange{0, 0}));
  EXPECT_EQ(layout.shard_of(third, 1), third);
}

TEST(FlatLayout, AnEmptyParameterTakesNoSpace) {
  const FlatLayout layout({0, 64}, 1);
  EXPECT_EQ(layout.parameter(1), (FlatRange{0, 64}));
  EXPECT_EQ(layout.padded_numel(), 64);
  EXPECT_THAT(layout.gaps(), IsEmpty());
}

}  // namespace
}  // namespace ds::zero
