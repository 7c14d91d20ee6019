#pragma once

// StagePart: which blocks of a model a stage of a pipeline has.

#include <vector>

namespace ds::models {

// BlockRange is the blocks [first, end).
struct BlockRange {
  int first = 0, end = 0;

  int size() const { return end - first; }
  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

// StagePart says what a stage of a pipeline has of a model of `all` blocks: one run of them, or,
// where it is several virtual stages, one for each of these, in the model's order.
struct StagePart {
  int stage = 0, stages = 1;
  std::vector<BlockRange> chunks = {};
  int all = 0;

  friend bool operator==(const StagePart&, const StagePart&) = default;
};

}  // namespace ds::models
