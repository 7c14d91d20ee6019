#pragma once

// UnitShape: the parameter counts of a block, the input of a plan of a step's memory.

#include <cstdint>
#include <vector>

namespace ds::zero {

// A range of parameters in a flat buffer that share one kind of optimizer.
struct RangeShape {
  int first = 0;  // the first parameter; ends at the next range
  bool muon = false;
  std::int64_t iteration = 0;  // elements (config::CountIterationElements) of Muon's largest matrix
};

// The parameters of one flat buffer, in order.
struct BucketShape {
  std::vector<std::int64_t> numels;
  bool trained = true;
  bool of_bytes = false;       // quantized bytes of frozen weights; not converted
  bool of_experts = false;     // other ranks have different ones
  bool on_two_stages = false;  // tied: another pipeline stage has the same
  bool rounded = false;        // may be quantized for transfer (ZeRO++) or, if frozen, stored so
  std::vector<RangeShape> ranges = {};  // empty: one range, without Muon
};

// The parameters of a block. The backward pass does nothing before the first trained unit.
struct UnitShape {
  std::vector<BucketShape> buckets;
  std::vector<int> also_reads = {};  // earlier units
  bool backward_reads = true;        // parameters
};

}  // namespace ds::zero
