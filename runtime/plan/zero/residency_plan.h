#pragma once

// ResidencyPlan: lists the units of a model to gather, release and reduce at each position of its
// forward and backward passes. It is a function of numbers that all ranks of a group share. Pure.
//
// A position is a step of a pass. At a unit's position, the unit and the units it also reads are
// present, unless it is a backward that reads no parameters. After these, in the order of the
// coming positions, as many units are gathered ahead as the budgets allow. A present unit stays if
// it is used again soon enough; a small unit stays until it is released from outside the plan. All
// other units are released: without budgets, all but the unit itself.
//
// A unit with shards on a tier other than the device has them fetched before its gather, as far
// ahead as fetch_bytes reaches past the units gathered ahead. They are offloaded again after the
// gather.
//
// If calls overlap with computation, a gather or reduction begins at one position and is awaited at
// another. Parameters are awaited where they are needed. Gradients are awaited when too many are in
// flight, and at the end of their micro-batch. Gathers begin before reductions: they are needed
// sooner.
//
// In a window (step_windows.h) gathered units stay until its end.
//
// A micro-batch is one forward pass and the backward of its graph. A unit's gradient of a
// micro-batch ends exactly once, by reduction or kept unreduced for later: at the first position
// after all backward positions of units that read it, or at the end of the micro-batch if there are
// none. If passes cover a range of the units, this holds for the micro-batch of that range.
//
// Positions may be in any order, and a unit may have several in a pass: layers that share
// parameters, or modules of a user. A pass that turns out to take another path is planned again
// from there; the new plan is told which gradients have ended, and ends them once more if they get
// a contribution.

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "runtime/config/model_state.h"

namespace ds::zero {

// UnitRange: the units [first, end).
struct UnitRange {
  int first = 0, end = 0;
};

// A rank's position in the passes through a model's units.
struct PassPosition {
  enum class Kind {
    kForward,          // of the unit
    kBackward,         // of the unit; those of a micro-batch are contiguous
    kWeightGradient,   // weight gradients of the unit, if they follow the backward pass
    kEndOfMicroBatch,  // after its backward
    kBetweenPasses,    // outside passes: no unit has to be present, small ones may be
  };

  Kind kind = Kind::kBetweenPasses;
  std::int64_t micro_batch = 0;
  int unit = 0;

  bool is_visit() const { return kind == Kind::kForward || kind == Kind::kBackward; }
  bool is_backward() const { return kind == Kind::kBackward || kind == Kind::kWeightGradient; }
  friend bool operator==(const PassPosition&, const PassPosition&) = default;
};

// An action of a rank at a position.
struct Action {
  enum class Kind {
    kReduce,  // begins
    kKeepFull,
    kRelease,
    kGather,   // begins
    kFetch,    // fetches this rank's shards from another tier
    kOffload,  // offloads them to that tier
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

// The numbers of a unit that a plan needs.
struct PlannedUnit {
  std::int64_t bytes = 0;            // of its parameters while gathered
  std::int64_t fetched_bytes = 0;    // of this rank's shards, if on another tier
  std::int64_t largest_bytes = 0;    // of one of its parameters
  std::int64_t reduced_bytes = 0;    // of its gradients in the communication dtype
  bool trained = false;              // at least one parameter
  std::vector<int> also_reads = {};  // other units
  bool backward_reads = true;        // reads its own or also_reads' parameters

  friend bool operator==(const PlannedUnit&, const PlannedUnit&) = default;
};

struct ResidencyBudgets {
  // A budget equal to the largest need of any single position.
  static constexpr std::int64_t kLargestNeed = -1;

  std::int64_t prefetch_bytes = 0;  // gathered ahead of the position that needs them
  std::int64_t max_live_bytes = std::numeric_limits<std::int64_t>::max();  // gathered at once
  // A present unit stays if the positions between and its next use need fewer bytes than this.
  std::int64_t reuse_bytes = 0;
  std::int64_t fetch_bytes = 0;   // of shards fetched ahead of the gather
  std::int64_t reduce_bytes = 0;  // of gradients in flight; one unit alone may exceed it
  // A unit with no parameter larger than persistent_parameter_bytes stays once present, as long as
  // the sum of these units is at most persistent_bytes.
  std::int64_t persistent_parameter_bytes = 0;
  std::int64_t persistent_bytes = std::numeric_limits<std::int64_t>::max();

  friend bool operator==(const ResidencyBudgets&, const ResidencyBudgets&) = default;
};

// A unit starts or stops being present, or being fetched.
struct UnitChange {
  int unit = 0;
  bool begins = false;
};

class ResidencyPlan {
 public:
  struct Input {
    std::vector<PlannedUnit> units;
    config::Sharding sharding;
    ResidencyBudgets budgets;
    bool overlap = false;           // calls overlap with computation
    bool keeps_parameters = false;  // gathered units stay: a window is open
    bool hold_gradients = false;    // sharded gradients also stay unreduced
    // No other micro-batch of the step follows: unsharded gradients are reduced, too.
    bool reduce_full_gradients = false;
    bool gradients_come_later = false;  // no gradient ends in this backward pass
    std::vector<PassPosition> positions;
    std::vector<PassPosition> expected = {};  // the positions after these, for reuse only
    std::vector<int> present = {};            // units present before the first position
    std::vector<int> fetched = {};            // units with fetched shards that are not gathered
    // If the plan begins within a backward pass: the units with gradients of this micro-batch that
    // have ended, and the units with a reduction in flight, in the order of their begin.
    std::vector<int> ended = {};
    std::vector<int> reducing = {};
    // The units that the positions pass through. Their gradients, and the gradients of units they
    // also read, end in a backward pass. nullopt: all units.
    std::optional<UnitRange> pass = {};
    // Lists the units with parameters that are read at the position, in ascending order.
    std::vector<int> ListNeeds(const PassPosition& position) const;
  };

  explicit ResidencyPlan(Input input);  // requires positions of existing units

  const std::vector<PassPosition>& positions() const { return input_.positions; }

  // Lists, in order, the actions of a rank that moves from position `from` (-1: none yet) to
  // position `to`. A backward pass may skip positions if its loss does not depend on a unit's
  // output: the gradients of skipped units still end, and nothing is gathered for them.
  std::vector<Action> ListActions(int from, int to) const;

  // Hashes the input and all actions: equal plans have equal hashes.
  std::uint64_t hash() const { return hash_; }

 private:
  void ResolveBudgets();
  void PlanPresence();
  std::vector<int> ListEnding() const;
  void AppendEnds(std::size_t begin, std::size_t end, std::vector<std::vector<int>>* ends) const;
  void PlanGradients();
  void AppendEnd(int unit, std::size_t position, std::vector<int>* in_flight);
  std::uint64_t ComputeHash() const;
  void AppendMoves(int from, int to, std::vector<Action>* actions) const;

  Input input_;
  // Indexed by position.
  std::vector<std::vector<UnitChange>> presence_, fetched_;
  std::vector<std::vector<Action>> gradients_;  // for gradients that end before the position
  std::uint64_t hash_ = 0;
};

}  // namespace ds::zero
