#pragma once

// ResidencyPlan: what of a model is brought, taken away and reduced at each place of its forward
// and backward passes, as a function of numbers that all ranks of a group have. Pure.
//
// A place is what the rank is about to do. At the place of a unit that unit and what it also reads
// are present, unless it is a backward that reads no parameters, and behind them, in the order of
// the places to come, as many units as the budgets let be gathered ahead. What is present and used
// again soon enough stays, and what is small enough stays until it is taken away from outside.
// Everything else is away: without budgets all but the unit itself.
//
// A unit whose shards lie on another tier than the device has them fetched before it is gathered,
// as far ahead as the budget for that reaches behind what is gathered ahead, and stowed behind
// that.
//
// Where calls go on beside the computation, a gather or reduction is begun at one place and awaited
// at another: parameters where they are needed; gradients where too many would be under way, and at
// the end of their micro-batch. Gathers are begun before reductions, as they are needed sooner.
//
// In a window (step_windows.h) what has been gathered stays until its end.
//
// A micro-batch is one forward pass and the backward of its graph. A unit's gradient of it ends, by
// reduction or kept whole for later, once: at the first place behind the backward of all that have
// read the unit. Where passes lead through a part of the units, those of the part's micro-batch.

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "runtime/config/model_state.h"
#include "runtime/plan/zero/places.h"

namespace ds::zero {

// A unit as a plan sees it.
struct PlannedUnit {
  std::int64_t bytes = 0;            // of its parameters while they are gathered
  std::int64_t fetched_bytes = 0;    // of this rank's shards, if they are on another tier
  std::int64_t largest_bytes = 0;    // of one of its parameters
  std::int64_t reduced_bytes = 0;    // of its gradients as they travel
  bool trained = false;              // at least one of them
  std::vector<int> also_reads = {};  // earlier units
  bool backward_reads = true;        // parameters, its own or those

  friend bool operator==(const PlannedUnit&, const PlannedUnit&) = default;
};

struct ResidencyBudgets {
  // A budget as large as the most that one place needs.
  static constexpr std::int64_t kLargestPlace = -1;

  std::int64_t prefetch_bytes = 0;  // gathered ahead of the place that needs them
  std::int64_t max_live_bytes = std::numeric_limits<std::int64_t>::max();  // gathered at once
  // A present unit stays when fewer bytes are needed between a place and the unit's next use.
  std::int64_t reuse_bytes = 0;
  std::int64_t fetch_bytes = 0;   // of shards that are fetched ahead of the gather
  std::int64_t reduce_bytes = 0;  // of gradients under way; one unit's may be more
  // A unit none of whose parameters is larger than that stays once it is there, as long as all that
  // stay so are not more than this.
  std::int64_t persistent_parameter_bytes = 0;
  std::int64_t persistent_bytes = std::numeric_limits<std::int64_t>::max();

  friend bool operator==(const ResidencyBudgets&, const ResidencyBudgets&) = default;
};

// A unit begins or ends to be present, or to be fetched.
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
    bool overlap = false;           // calls go on beside the computation
    bool keeps_parameters = false;  // what is gathered stays: a window is open
    bool hold_gradients = false;    // sharded ones stay whole, too
    // No other micro-batch of the step follows: whole ones are reduced, too.
    bool reduce_whole_gradients = false;
    bool gradients_come_later = false;  // no unit's end in this backward pass
    std::vector<Place> places;
    std::vector<Place> expected = {};  // what is to come behind them, for reuse alone
    std::vector<int> present = {};     // units, before the first place
    std::vector<int> fetched = {};     // those whose shards have been, and are not gathered
    // Those that the places lead through, and with what they also read the ones whose gradients end
    // in a backward pass. None: all.
    std::optional<UnitRange> pass = {};
    // Lists the units whose parameters are read at the place, in ascending order.
    std::vector<int> ListNeeds(const Place& place) const;
  };

  explicit ResidencyPlan(Input input);  // of places of units that there are

  const std::vector<Place>& places() const { return input_.places; }

  // Lists in order what is to be done at place `to` by a rank that has been at place `from` last
  // (-1: at none). A backward pass may leave out places, as its loss may not depend on a unit's
  // output: gradients end all the same, and nothing is gathered for them.
  std::vector<Action> ListActions(int from, int to) const;

  // Hashes the input and all actions: ranks with equal plans get the same.
  std::uint64_t hash() const { return hash_; }

 private:
  void ResolveBudgets();
  void PlanPresence();
  void PlanGradients();
  void AppendEnd(int unit, std::size_t place, std::vector<int>* under_way);
  std::uint64_t ComputeHash() const;
  void AppendMoves(int from, int to, std::vector<Action>* actions) const;

  Input input_;
  // By place.
  std::vector<std::vector<UnitChange>> presence_, fetched_;
  std::vector<std::vector<Action>> gradients_;  // what is done with those that end before it
  std::uint64_t hash_ = 0;
};

}  // namespace ds::zero
