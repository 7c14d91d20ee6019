#pragma once

// Partition: where a list of blocks is cut into runs for the (virtual) stages of a pipeline. The
// methods of DeepSpeed's PipelineModule, with its results. Pure; safe from any thread.
//
// A cut is parts + 1 ascending indices of blocks: part p has blocks [cut[p], cut[p + 1]).

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::pipeline {

// Requires count >= 0 and parts >= 1. Parts of equal numbers, the first ones of one more; empty
// ones at the end where there are fewer blocks than parts.
std::vector<int> CutUniformly(int count, int parts);

// Makes the heaviest and the lightest part as equal as can be, those with fewer blocks than parts
// as CutUniformly. Of equally good cuts the one whose last parts are the smallest (DeepSpeed's
// partition_balanced). Takes time in proportion to blocks^2 x parts. Requires weights >= 0.
std::vector<int> CutByWeight(const std::vector<double>& weights, int parts);

// A block as the methods see it.
struct WeighedBlock {
  std::string name;  // its class
  std::int64_t trained = 0;
};

// `method` is "uniform"; "parameters", by what is trained; "best", which is the same; or
// "type:REGEX", by the number of blocks whose name the Perl-like expression finds, whatever its
// case. Refuses any other (also DeepSpeed's "profile", which it names but does not have), an
// expression that is none, is longer than 200 characters, counts with {}, has back-references or
// finds no block, and more parts than blocks.
StatusOr<std::vector<int>> CutBlocks(const std::string& method,
                                     const std::vector<WeighedBlock>& blocks, int parts);

}  // namespace ds::pipeline
