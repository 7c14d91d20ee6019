#include "runtime/checkpoint_format/regions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace ds::checkpoint {
namespace {

using ::testing::ElementsAre;

std::int64_t Count(const Shape& shape) { return ElementCount(shape).value(); }

// Those of the tensor that the boxes have in dimension d, in order.
std::vector<std::int64_t> Coordinates(const Shape& tensor, const Boxes& boxes, std::size_t d) {
  std::vector<std::int64_t> coordinates;
  const Boxes full{Box{Shape(tensor.size(), 0), tensor}};
  for (const Box& box : boxes.empty() ? full : boxes) {
    const bool repeats = !coordinates.empty() && box.offset[d] == boxes[0].offset[d];
    for (std::int64_t i = 0; i < box.shape[d] && !repeats; ++i) {
      coordinates.push_back(box.offset[d] + i);
    }
  }
  return coordinates;
}

// The flat global index of every element of the region, in order, by walking the boxes.
std::vector<std::int64_t> IndicesByWalking(const Shape& tensor, const Region& region) {
  const Shape extent = ShapeOf(tensor, region.boxes);
  std::vector<std::vector<std::int64_t>> coordinates;
  for (std::size_t d = 0; d < tensor.size(); ++d) {
    coordinates.push_back(Coordinates(tensor, region.boxes, d));
  }
  std::vector<std::int64_t> indices;
  Shape at(tensor.size(), 0);
  for (std::int64_t i = 0; i < Count(extent); ++i) {
    std::int64_t rest = i;
    std::int64_t global = 0;
    for (std::size_t d = tensor.size(); d > 0; --d) {
      at[d - 1] = rest % extent[d - 1];
      rest /= extent[d - 1];
    }
    for (std::size_t d = 0; d < tensor.size(); ++d) {
      global = global * tensor[d] + coordinates[d][static_cast<std::size_t>(at[d])];
    }
    if (i >= region.flat_start && i < region.flat_start + region.flat_count) {
      indices.push_back(global);
    }
  }
  return indices;
}

std::vector<std::int64_t> IndicesOfStretches(const std::vector<Stretch>& stretches) {
  std::vector<std::int64_t> indices;
  for (const Stretch& stretch : stretches) {
    EXPECT_EQ(stretch.local, static_cast<std::int64_t>(indices.size()));
    for (std::int64_t i = 0; i < stretch.count; ++i) indices.push_back(stretch.global + i);
  }
  return indices;
}

Region RandomRegion(const Shape& tensor, std::mt19937* random) {
  const auto below = [&](std::int64_t bound) {
    return std::uniform_int_distribution<std::int64_t>(0, bound)(*random);
  };
  Region region;
  const std::int64_t kind = below(3);
  if (kind == 0) {
    const auto along =
        static_cast<std::size_t>(below(static_cast<std::int64_t>(tensor.size()) - 1));
    for (std::int64_t end = below(1); end < tensor[along]; end += 1 + below(1)) {
      Box box{Shape(tensor.size(), 0), tensor};
      box.offset[along] = end;
      box.shape[along] = 1 + below(std::min<std::int64_t>(1, tensor[along] - end - 1));
      end += box.shape[along];
      region.boxes.push_back(box);
    }
  } else if (kind > 1) {
    Box box{tensor, tensor};
    for (std::size_t d = 0; d < tensor.size(); ++d) {
      box.offset[d] = below(1) * below(tensor[d]);
      box.shape[d] = below(1) == 0 ? tensor[d] - box.offset[d] : below(tensor[d] - box.offset[d]);
    }
    region.boxes = {box};
  }
  const Shape extent = ShapeOf(tensor, region.boxes);
  region.flat_start = below(Count(extent));
  region.flat_count = below(Count(extent) - region.flat_start);
  return region;
}

TEST(Stretches, OfAFlatRangeIsTheRange) {
  EXPECT_THAT(FindStretches(Shape{4, 5}, {Boxes{}, 3, 9}), ElementsAre(Stretch{3, 0, 9}));
  EXPECT_THAT(FindStretches(Shape{}, {Boxes{}, 0, 1}), ElementsAre(Stretch{0, 0, 1}));
  EXPECT_THAT(FindStretches(Shape{4, 5}, {Boxes{}, 20, 0}), ElementsAre());
}

TEST(Stretches, OfColumnsAreRows) {
  const Region columns{Boxes{Box{{0, 1}, {3, 2}}}, 1, 4};
  EXPECT_THAT(FindStretches(Shape{3, 5}, columns),
              ElementsAre(Stretch{2, 0, 1}, Stretch{6, 1, 2}, Stretch{11, 3, 1}));
}

TEST(Stretches, OfFullRowsAreOneRun) {
  EXPECT_THAT(FindStretches(Shape{4, 5}, {Boxes{Box{{1, 0}, {2, 5}}}, 0, 10}),
              ElementsAre(Stretch{5, 0, 10}));
}

TEST(Stretches, OfBoxesSideBySideAreRowsOfEach) {
  const Boxes boxes{Box{{0, 1}, {3, 1}}, Box{{0, 4}, {3, 2}}};
  EXPECT_THAT(ShapeOf(Shape{3, 6}, boxes), ElementsAre(3, 3));
  EXPECT_THAT(FindStretches(Shape{3, 6}, {boxes, 1, 5}),
              ElementsAre(Stretch{4, 0, 2}, Stretch{7, 2, 1}, Stretch{10, 3, 2}));
}

TEST(Stretches, EqualAWalkOverTheBoxes) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 500; ++trial) {
    const Shape tensor = trial % 2 == 0 ? Shape{3, 4, 5} : Shape{2, 3, 2, 4};
    const Region region = RandomRegion(tensor, &random);
    ASSERT_TRUE(CheckRegion(tensor, region).ok());
    EXPECT_EQ(IndicesOfStretches(FindStretches(tensor, region)), IndicesByWalking(tensor, region));
  }
}

TEST(Overlap, CopiesExactlyTheCommonElements) {
  std::mt19937 random(12);
  const Shape tensor{4, 3, 5};
  for (int trial = 0; trial < 500; ++trial) {
    const Region source = RandomRegion(tensor, &random);
    const Region target = RandomRegion(tensor, &random);
    const auto held = IndicesByWalking(tensor, source);
    const auto wanted = IndicesByWalking(tensor, target);
    std::vector<std::int64_t> filled(wanted.size(), -1);
    for (const Copy& copy :
         IntersectStretches(FindStretches(tensor, source), FindStretches(tensor, target))) {
      for (std::int64_t i = 0; i < copy.count; ++i) {
        filled[copy.target + i] = held[copy.source + i];
      }
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const bool is_held = std::find(held.begin(), held.end(), wanted[i]) != held.end();
      EXPECT_EQ(filled[i], is_held ? wanted[i] : -1);
    }
  }
}

TEST(CheckRegion, RefusesRegionsOutsideTheTensor) {
  const Shape tensor{4, 5};
  EXPECT_TRUE(CheckRegion(tensor, {Boxes{}, 0, 20}).ok());
  EXPECT_FALSE(CheckRegion(tensor, {Boxes{}, 1, 20}).ok());
  EXPECT_FALSE(CheckRegion(tensor, {Boxes{}, -1, 2}).ok());
  EXPECT_FALSE(CheckRegion(tensor, {Boxes{}, 0, -2}).ok());
  EXPECT_FALSE(CheckRegion(tensor, {Boxes{}, INT64_MAX, INT64_MAX}).ok());
  EXPECT_FALSE(CheckRegion(tensor, {Boxes{Box{{0, 1}, {4, 5}}}, 0, 1}).ok());
  EXPECT_FALSE(CheckRegion(tensor, {Boxes{Box{{0}, {4}}}, 0, 1}).ok());
  EXPECT_FALSE(CheckRegion(tensor, {Boxes{Box{{-1, 0}, {4, 5}}}, 0, 1}).ok());
  EXPECT_FALSE(CheckRegion(tensor, {Boxes{Box{{INT64_MAX, 0}, {INT64_MAX, 5}}}, 0, 1}).ok());
  EXPECT_FALSE(CheckRegion(tensor, {Boxes{Box{{0, 0}, {2, 2}}}, 0, 5}).ok());
}

TEST(CheckRegion, RefusesBoxesThatAreNotAdjacent) {
  const Shape tensor{4, 5};
  const auto is_taken = [&](const Boxes& boxes) { return CheckRegion(tensor, {boxes, 0, 1}).ok(); };
  EXPECT_TRUE(is_taken({Box{{0, 0}, {4, 1}}, Box{{0, 3}, {4, 2}}}));
  EXPECT_TRUE(is_taken({Box{{0, 0}, {1, 5}}, Box{{1, 0}, {1, 5}}, Box{{3, 0}, {1, 5}}}));
  EXPECT_FALSE(is_taken({Box{{0, 3}, {4, 2}}, Box{{0, 0}, {4, 1}}}));  // descending
  EXPECT_FALSE(is_taken({Box{{0, 0}, {4, 2}}, Box{{0, 1}, {4, 2}}}));  // not apart
  EXPECT_FALSE(is_taken({Box{{0, 0}, {4, 2}}, Box{{0, 0}, {4, 2}}}));
  EXPECT_FALSE(is_taken({Box{{0, 0}, {3, 1}}, Box{{0, 3}, {3, 2}}}));  // not all rows
  EXPECT_FALSE(is_taken({Box{{0, 0}, {4, 1}}, Box{{0, 3}, {4, 3}}}));  // leaves the tensor
}

TEST(ElementCount, RefusesOverflow) {
  EXPECT_EQ(Count({}), 1);
  EXPECT_EQ(Count({3, 0, 7}), 0);
  EXPECT_FALSE(ElementCount(Shape{-1}).ok());
  EXPECT_FALSE(ElementCount(Shape{INT64_MAX, 2}).ok());
  EXPECT_FALSE(ElementCount(Shape{1LL << 32, 1LL << 32}).ok());
}

TEST(ShareOf, CoversEverythingOnce) {
  for (const std::int64_t total : {0, 1, 2, 7, 8, 1000}) {
    for (const int replicas : {1, 2, 3, 8}) {
      std::int64_t next = 0;
      for (int index = 0; index < replicas; ++index) {
        const Share share = ShareOf(total, index, replicas);
        EXPECT_EQ(share.first, next);
        EXPECT_LE(share.count, total / replicas + 1);
        next += share.count;
      }
      EXPECT_EQ(next, total);
    }
  }
}

}  // namespace
}  // namespace ds::checkpoint
