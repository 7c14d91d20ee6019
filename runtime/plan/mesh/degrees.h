#pragma once

// Degrees: into how many parts a job is cut along each axis of parallelism, and in which order the
// axes number the ranks. The axes:
//
//   pipeline   stages: each rank has some of the blocks
//   replicate  copies of everything that the axes below cut; each has samples of its own
//   shard      ZeRO: parts of the model state; each rank has samples of its own
//   sequence   parts of the same samples
//   tensor     parts of every matrix
//
// Experts lie across shard x sequence: `expert` ranks of it hold different ones.
//
// Pure; safe from any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/config/check/job_facts.h"

namespace ds::topology {

enum class Axis { kPipeline, kReplicate, kShard, kSequence, kTensor };
inline constexpr std::size_t kAxisCount = 5;

std::string_view NameOf(Axis axis);

// A set of axes. Those with a meaning of their own:
class AxisSet {
 public:
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) bits_ |= 1U << static_cast<unsigned>(axis);
  }
  constexpr AxisSet With(Axis axis) const {
    AxisSet all = *this;
    all.bits_ |= 1U << static_cast<unsigned>(axis);
    return all;
  }
  constexpr AxisSet With(AxisSet others) const {
    others.bits_ |= bits_;
    return others;
  }
  constexpr AxisSet Without(AxisSet others) const {
    others.bits_ = bits_ & ~others.bits_;
    return others;
  }
  constexpr bool contains(Axis axis) const {
    return (bits_ >> static_cast<unsigned>(axis) & 1U) != 0;
  }
  friend constexpr bool operator==(AxisSet, AxisSet) = default;

 private:
  unsigned bits_ = 0;
};
// Ranks with samples of their own: the batch formula, the mean of the losses.
inline constexpr AxisSet kDataAxes{Axis::kReplicate, Axis::kShard};
// Ranks whose gradients of a dense parameter add up; they hold, whole or in parts, the same model.
inline constexpr AxisSet kGradientAxes{Axis::kReplicate, Axis::kShard, Axis::kSequence};
// Ranks among which a dense parameter is cut.
inline constexpr AxisSet kShardAxes{Axis::kShard, Axis::kSequence};
// Ranks that hold equal shards.
inline constexpr AxisSet kReplicaAxes{Axis::kReplicate};

struct Degrees {
  int pipeline = 1;
  int replicate = 1;
  int shard = 1;
  int sequence = 1;
  int tensor = 1;
  int expert = 1;  // a divisor of shard x sequence
  // Neighbours hold different experts, or, by this second order, the same ones.
  bool data_before_expert = false;
  // Outermost first: ranks that are neighbours along the last axis have neighbouring numbers.
  std::array<Axis, kAxisCount> order{Axis::kPipeline, Axis::kReplicate, Axis::kShard,
                                     Axis::kSequence, Axis::kTensor};

  int along(Axis axis) const;
};

// Reads "pipeline=2,tensor=4": the axes are ordered as they are named, those without a name stand
// where the default order has them. Where `shard` has no degree, it takes the ranks that are left.
StatusOr<Degrees> ParseDegrees(std::string_view text, int world_size);

// Refuses more stages than layers, and experts that `expert` does not divide, naming the degrees
// next to it that do. A fact that the model does not tell is not held against it. What tensor and
// sequence ranks can share of a model's heads is told by plan/model/model_ranks.h.
Status CheckFitsModel(const Degrees& degrees, const config::ModelFacts& model);

}  // namespace ds::topology
