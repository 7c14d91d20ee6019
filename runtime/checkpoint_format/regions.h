#pragma once

// Region: the elements of a global tensor that a shard holds. Intersecting the regions of two
// shards is the whole of resharding, as integers.
//
// A shard is a contiguous range of a flattened part of the tensor. ZeRO cuts the flattened tensor
// itself (no box); tensor parallelism cuts a box out first, or several side by side: a part of the
// queries, of the keys and of the values of one weight. All are a list of stretches, the maximal
// parts that are contiguous in the flattened global tensor. The stretches of one region ascend, in
// the tensor and in the region alike, so two regions are intersected by one walk over both.
//
// Requires of all functions here: valid regions (CheckRegion).

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

// None: the whole tensor. Several lie side by side, ascending and apart, along one dimension, and
// span all others wholly: the tensor of these boxes is their concatenation along it.
using Boxes = std::vector<Box>;

// Elements [flat_start, flat_start + flat_count) of the tensor of the boxes, flattened.
struct Region {
  Boxes boxes;
  std::int64_t flat_start = 0;
  std::int64_t flat_count = 0;
  friend bool operator==(const Region&, const Region&) = default;
};

// Product of the dimensions (1 for a scalar); an error when one is negative or it exceeds 2^56.
StatusOr<std::int64_t> ElementCount(std::span<const std::int64_t> shape);

// The shape of the tensor of the boxes. Requires boxes that CheckRegion takes.
Shape ShapeOf(std::span<const std::int64_t> tensor_shape, const Boxes& boxes);

// Fails unless the region lies within the tensor and its boxes are what is said above.
Status CheckRegion(std::span<const std::int64_t> tensor_shape, const Region& region);

// `count` elements that start at `global` in the flattened tensor and at `local` in the region.
struct Stretch {
  std::int64_t global = 0;
  std::int64_t local = 0;
  std::int64_t count = 0;
  friend bool operator==(const Stretch&, const Stretch&) = default;
};

std::vector<Stretch> FindStretches(std::span<const std::int64_t> tensor_shape,
                                   const Region& region);

// `count` elements to be copied from `source` in one region to `target` in the other.
struct Copy {
  std::int64_t source = 0;
  std::int64_t target = 0;
  std::int64_t count = 0;
  friend bool operator==(const Copy&, const Copy&) = default;
};

std::vector<Copy> IntersectStretches(std::span<const Stretch> source,
                                     std::span<const Stretch> target);

// The part [first, first + count) of `total` elements that replica `index` of `replicas` writes:
// parts are contiguous, disjoint, cover everything and differ by at most one element.
struct Share {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
Share ShareOf(std::int64_t total, int index, int replicas);

}  // namespace ds::checkpoint
