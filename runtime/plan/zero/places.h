#pragma once

// Place and Action: where a rank is in the passes through a model's units, and what it does there.

#include <cstdint>

namespace ds::zero {

// UnitRange is the units [first, end).
struct UnitRange {
  int first = 0, end = 0;
};

struct Place {
  enum class Kind {
    kForward,          // of the unit
    kBackward,         // of the unit; those of one micro-batch come in descending order
    kWeightGradient,   // the same, where gradients of weights come behind the backward pass
    kEndOfMicroBatch,  // behind its backward
    kRest,             // neither: nothing has to be present, and what is small may be
  };

  Kind kind = Kind::kRest;
  std::int64_t micro_batch = 0;
  int unit = 0;

  bool is_visit() const { return kind == Kind::kForward || kind == Kind::kBackward; }
  friend bool operator==(const Place&, const Place&) = default;
};

struct Action {
  enum class Kind {
    kReduce,  // begins
    kKeepWhole,
    kRelease,
    kGather,  // begins
    kFetch,   // this rank's shards come from another tier
    kStow,    // and go back there
    // Where calls go on beside the computation, the rank waits until what was begun has ended.
    kAwaitParameters,
    kAwaitGradients,
  };

  Kind kind = Kind::kGather;
  int unit = 0;

  // Tells whether all ranks of the group take part.
  bool collective() const { return kind == Kind::kReduce || kind == Kind::kGather; }
  friend bool operator==(const Action&, const Action&) = default;
};

}  // namespace ds::zero
