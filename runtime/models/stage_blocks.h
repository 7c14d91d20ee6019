#pragma once

// StagePart: the blocks of a model that a pipeline stage holds.

#include <vector>

namespace ds::models {

// The blocks [first, end).
struct BlockRange {
  int first = 0, end = 0;

  int size() const { return end - first; }
  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

// The blocks that a pipeline stage holds of a model of `all` blocks: one run, or one run for each
// of its virtual stages, in model order.
struct StagePart {
  int stage = 0, stages = 1;
  std::vector<BlockRange> chunks = {};
  int all = 0;

  friend bool operator==(const StagePart&, const StagePart&) = default;
};

}  // namespace ds::models
