#pragma once

// UnitShape: the parameters of a block in numbers, as a plan of a step's memory is given them.

#include <cstdint>
#include <vector>

namespace ds::zero {

// Parameters of a flat buffer that are trained alike.
struct RangeShape {
  int first = 0;  // from this one on
  bool muon = false;
  std::int64_t iteration = 0;  // elements (config::CountIterationElements) of Muon's largest matrix
};

// Parameters of one flat buffer, in order.
struct BucketShape {
  std::vector<std::int64_t> numels;
  bool trained = true;
  bool of_bytes = false;                // that stand for frozen weights, and are not converted
  bool of_experts = false;              // that other ranks have others of
  bool on_two_stages = false;           // another one of the pipeline has the same, tied
  bool rounded = false;                 // may travel so (ZeRO++), or, frozen, be kept so
  std::vector<RangeShape> ranges = {};  // none: all are trained alike, and not by Muon
};

// The parameters of a block. Nothing is done in the backward pass of those before the first trained
// one.
struct UnitShape {
  std::vector<BucketShape> buckets;
  std::vector<int> also_reads = {};  // earlier units
  bool backward_reads = true;        // parameters
};

}  // namespace ds::zero
