#pragma once

// A Region identifies the elements of a global tensor that a shard holds. Resharding is
// intersecting the regions of two shards, with integers only.
//
// A shard is a contiguous range of a flattened part of the tensor. ZeRO partitions the flattened
// tensor itself (no box). Tensor parallelism first selects a box, or several boxes side by side: a
// part of the queries, of the keys and of the values of one weight. Every region is a list of
// stretches, the maximal parts that are contiguous in the flattened global tensor. The stretches of
// a region ascend both in the tensor and in the region, so one walk over both lists intersects two
// regions.
//
// All functions here require valid regions (CheckRegion).

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.h"

namespace ds::checkpoint {

using Shape = std::vector<std::int64_t>;

struct Box {
  Shape offset;
  Shape shape;
  friend bool operator==(const Box&, const Box&) = default;
};

// No box means the full tensor. Several boxes are disjoint and ascend along one dimension, and each
// spans all other dimensions fully. The tensor of these boxes is their concatenation along that
// dimension.
using Boxes = std::vector<Box>;

// Elements [flat_start, flat_start + flat_count) of the flattened tensor of the boxes.
struct Region {
  Boxes boxes;
  std::int64_t flat_start = 0;
  std::int64_t flat_count = 0;
  friend bool operator==(const Region&, const Region&) = default;
};

// Returns the product of the dimensions (1 for a scalar). Fails when a dimension is negative or the
// product exceeds 2^56.
StatusOr<std::int64_t> ElementCount(std::span<const std::int64_t> shape);

// Returns the shape of the tensor of the boxes. The boxes must be valid for CheckRegion.
Shape ShapeOf(std::span<const std::int64_t> tensor_shape, const Boxes& boxes);

// Fails unless the region lies within the tensor and its boxes meet the rules of Boxes.
Status CheckRegion(std::span<const std::int64_t> tensor_shape, const Region& region);

// A run of `count` elements that starts at `global` in the flattened tensor and at `local` in the
// region.
struct Stretch {
  std::int64_t global = 0;
  std::int64_t local = 0;
  std::int64_t count = 0;
  friend bool operator==(const Stretch&, const Stretch&) = default;
};

std::vector<Stretch> FindStretches(std::span<const std::int64_t> tensor_shape,
                                   const Region& region);

// A copy of `count` elements from `source` in one region to `target` in the other.
struct Copy {
  std::int64_t source = 0;
  std::int64_t target = 0;
  std::int64_t count = 0;
  friend bool operator==(const Copy&, const Copy&) = default;
};

std::vector<Copy> IntersectStretches(std::span<const Stretch> source,
                                     std::span<const Stretch> target);

// The range [first, first + count) of `total` elements that replica `index` of `replicas` writes.
// The ranges are contiguous and disjoint, cover everything and differ by at most one element.
struct Share {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
Share ShareOf(std::int64_t total, int index, int replicas);

}  // namespace ds::checkpoint
