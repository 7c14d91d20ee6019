#pragma once

// Degrees: the degree of each axis of parallelism of a job, and the order in which the axes number
// the ranks. The axes:
//
//   pipeline   stages: each rank holds some of the blocks
//   replicate  copies of everything the axes below split; each has samples of its own
//   shard      ZeRO: shards of the model state; each rank has samples of its own
//   sequence   parts of the same samples
//   tensor     parts of every matrix
//
// Experts are distributed over shard x sequence, in groups of `expert` ranks that hold different
// experts.
//
// Pure. Thread-safe.

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

// A set of axes. The constants below name the sets with a meaning of their own.
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
// Ranks with samples of their own: they count in the batch formula and the mean of the losses.
inline constexpr AxisSet kDataAxes{Axis::kReplicate, Axis::kShard};
// Ranks that sum their gradients of a dense parameter. They hold the same model, full or sharded.
inline constexpr AxisSet kGradientAxes{Axis::kReplicate, Axis::kShard, Axis::kSequence};
// Ranks that shard a dense parameter.
inline constexpr AxisSet kShardAxes{Axis::kShard, Axis::kSequence};
// Ranks that hold equal shards.
inline constexpr AxisSet kReplicaAxes{Axis::kReplicate};

struct Degrees {
  int pipeline = 1;
  int replicate = 1;
  int shard = 1;
  int sequence = 1;
  int tensor = 1;
  int expert = 1;  // divides shard x sequence
  // False: neighbouring ranks hold different experts. True: they hold the same experts.
  bool data_before_expert = false;
  // Outermost first: neighbours along the last axis have consecutive rank numbers.
  std::array<Axis, kAxisCount> order{Axis::kPipeline, Axis::kReplicate, Axis::kShard,
                                     Axis::kSequence, Axis::kTensor};

  int along(Axis axis) const;
};

// Parses "pipeline=2,tensor=4". Named axes are ordered as in the text; unnamed axes keep their
// positions in the default order. If `shard` is not named, its degree is the world size over the
// product of the others.
StatusOr<Degrees> ParseDegrees(std::string_view text, int world_size);

// Refuses more stages than layers, and an `expert` that does not divide the model's experts; the
// error names the nearest degrees that do. Facts missing from `model` are not checked.
// plan/model/model_ranks.h checks how tensor and sequence ranks share the heads.
Status CheckFitsModel(const Degrees& degrees, const config::ModelFacts& model);

}  // namespace ds::topology
