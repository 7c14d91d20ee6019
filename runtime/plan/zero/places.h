#pragma once

// Place and Action: a rank's position in the passes through a model's units, and its actions there.

#include <cstdint>

namespace ds::zero {

// UnitRange: the units [first, end).
struct UnitRange {
  int first = 0, end = 0;
};

struct Place {
  enum class Kind {
    kForward,          // of the unit
    kBackward,         // of the unit; those of a micro-batch are contiguous
    kWeightGradient,   // weight gradients of the unit, if they follow the backward pass
    kEndOfMicroBatch,  // after its backward
    kRest,             // outside passes: no unit has to be present, small ones may be
  };

  Kind kind = Kind::kRest;
  std::int64_t micro_batch = 0;
  int unit = 0;

  bool is_visit() const { return kind == Kind::kForward || kind == Kind::kBackward; }
  bool is_backward() const { return kind == Kind::kBackward || kind == Kind::kWeightGradient; }
  friend bool operator==(const Place&, const Place&) = default;
};

struct Action {
  enum class Kind {
    kReduce,  // begins
    kKeepWhole,
    kRelease,
    kGather,  // begins
    kFetch,   // fetches this rank's shards from another tier
    kStow,    // offloads them to that tier
    // If calls overlap with computation, these wait for a call in flight.
    kAwaitParameters,
    kAwaitGradients,
  };

  Kind kind = Kind::kGather;
  int unit = 0;

  // True if all ranks of the group take part.
  bool collective() const { return kind == Kind::kReduce || kind == Kind::kGather; }
  friend bool operator==(const Action&, const Action&) = default;
};

}  // namespace ds::zero
