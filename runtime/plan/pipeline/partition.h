#pragma once

// Partition: where a list of blocks is cut into runs for the (virtual) stages of a pipeline. The
// methods of DeepSpeed's PipelineModule, with its results, and those that it only names. Pure; safe
// from any thread.
//
// A cut is parts + 1 ascending indices of blocks: part p has blocks [cut[p], cut[p + 1]).

#include <cstdint>
#include <functional>
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

// The cut whose costliest part costs as little as can be, where the same blocks may cost one part
// more than another, each part with a block or more; of equally good ones the one whose first parts
// are the smallest. `cost` of part p with blocks [first, end) does not fall as a part gets more
// blocks. Takes time in proportion to blocks^2 x parts. Requires count >= parts >= 1.
std::vector<int> CutByCost(int count, int parts,
                           const std::function<double(int part, int first, int end)>& cost);

// A block as the methods see it.
struct WeighedBlock {
  std::string name;  // its class
  std::int64_t trained = 0;
  double work = 0.0;            // in any unit: what a sample takes
  std::string other_name = {};  // what other programs call the class; "" for nothing else
};

// `method` is "uniform"; "parameters", by what is trained; "best", which is the same; "profile", by
// work, the heaviest part as light as can be (DeepSpeed names it and does not have it); or
// "type:REGEX", by the number of blocks of which the Perl-like expression finds a name, whatever
// its case. Refuses any other, an expression that is none, is longer than 200 characters, counts
// with
// {}, has back-references or finds no block, and more parts than blocks.
StatusOr<std::vector<int>> CutBlocks(const std::string& method,
                                     const std::vector<WeighedBlock>& blocks, int parts);

}  // namespace ds::pipeline
