#pragma once

// Partition: splits a list of blocks into runs for the (virtual) stages of a pipeline. Implements
// the methods of DeepSpeed's PipelineModule, with its results, and the methods that it only names.
// Pure. Thread-safe.
//
// A split is parts + 1 ascending block indices: part p has blocks [split[p], split[p + 1]).

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::pipeline {

// Splits into parts of equal size; if the sizes differ, the first parts have one block more. With
// fewer blocks than parts, the last parts are empty. Requires count >= 0 and parts >= 1.
std::vector<int> PartitionUniformly(int count, int parts);

// Minimizes the difference between the heaviest and the lightest part; with at most as many blocks
// as parts, equals PartitionUniformly. Ties go to the split with the smallest last parts
// (DeepSpeed's partition_balanced). Takes O(blocks^2 x parts) time. Requires parts >= 1 and weights
// >= 0.
std::vector<int> PartitionByWeight(const std::vector<double>& weights, int parts);

// Minimizes the cost of the costliest part; each part has at least one block. The same blocks may
// cost one part more than another. Ties go to the split with the smallest first parts. `cost` of
// part p with blocks [first, end) must not decrease as a part gets more blocks. Takes O(blocks^2 x
// parts) time. Requires count >= parts >= 1.
std::vector<int> PartitionByCost(int count, int parts,
                                 const std::function<double(int part, int first, int end)>& cost);

// A block, as the methods weigh it.
struct WeighedBlock {
  std::string name;  // of its class
  std::int64_t trained = 0;
  double work = 0.0;            // of a sample, in any unit
  std::string other_name = {};  // the class name in other programs; "" if none
};

// Splits the blocks by `method`: "uniform"; "parameters", by trained parameters; "best", the same;
// "profile", which minimizes the work of the heaviest part (DeepSpeed names it but lacks it); or
// "type:REGEX", by the number of blocks with a name that the Perl-like expression finds, ignoring
// case. Refuses other methods, more parts than blocks, and an expression that is invalid, is longer
// than 200 characters, has counts in braces or back-references, or finds no block.
StatusOr<std::vector<int>> PartitionBlocks(const std::string& method,
                                           const std::vector<WeighedBlock>& blocks, int parts);

}  // namespace ds::pipeline
