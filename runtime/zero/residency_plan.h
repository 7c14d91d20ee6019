#pragma once

// ResidencyPlan: what of a model is brought, taken away and reduced at each place of its forward
// and backward passes, as a function of numbers that all ranks of a group have. Pure.
//
// A place is what the rank is about to do. At the place of a unit that unit and what it also reads
// are present, and behind them, in the order of the places to come, as many units as the budgets
// let be gathered ahead; everything else is away. Without a prefetch budget that is the unit alone.
//
// A micro-batch is one forward pass and the backward of its graph. A unit's gradient of it ends, by
// reduction or kept whole for later, once: at the first place behind the backward of all that have
// read the unit.

#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/model_state.h"

namespace ds::zero {

// A unit as a plan sees it.
struct PlannedUnit {
  std::int64_t bytes = 0;            // of its parameters while they are gathered
  bool trained = false;              // at least one of them
  std::vector<int> also_reads = {};  // earlier units

  friend bool operator==(const PlannedUnit&, const PlannedUnit&) = default;
};

struct ResidencyBudgets {
  std::int64_t prefetch_bytes = 0;  // gathered ahead of the place that needs them
  std::int64_t max_live_bytes = std::numeric_limits<std::int64_t>::max();  // gathered at once

  friend bool operator==(const ResidencyBudgets&, const ResidencyBudgets&) = default;
};

struct Place {
  enum class Kind {
    kForward,          // of the unit
    kBackward,         // of the unit; those of one micro-batch come in descending order
    kEndOfMicroBatch,  // behind its backward
    kRest,             // neither: nothing has to be present
  };

  Kind kind = Kind::kRest;
  std::int64_t micro_batch = 0;
  int unit = 0;

  friend bool operator==(const Place&, const Place&) = default;
};

struct Action {
  enum class Kind { kReduce, kKeepWhole, kRelease, kGather };

  Kind kind = Kind::kGather;
  int unit = 0;

  // Tells whether all ranks of the group take part.
  bool collective() const { return kind == Kind::kReduce || kind == Kind::kGather; }
  friend bool operator==(const Action&, const Action&) = default;
};

class ResidencyPlan {
 public:
  struct Input {
    std::vector<PlannedUnit> units;
    config::Sharding sharding;
    ResidencyBudgets budgets;
    bool hold_gradients = false;  // sharded ones stay whole, too
    std::vector<Place> places;
    std::vector<int> present;  // units, before the first place
  };

  // Requires places of units that there are. Fails where a place needs more than max_live_bytes.
  static StatusOr<ResidencyPlan> Make(Input input);

  const std::vector<Place>& places() const { return input_.places; }

  // Lists in order what is to be done at place `to` by a rank that has been at place `from` last
  // (-1: at none). A backward pass may leave out places, as its loss may not depend on a unit's
  // output: gradients end all the same, and nothing is gathered for them.
  std::vector<Action> ListActions(int from, int to) const;

  // Hashes the input and all actions: ranks with equal plans get the same.
  std::uint64_t hash() const { return hash_; }

 private:
  explicit ResidencyPlan(Input input) : input_(std::move(input)) {}
  std::vector<int> ListNeeds(const Place& place) const;
  Status PlanPresence();
  void Prefetch(std::size_t place, std::int64_t bytes, std::vector<int>* present) const;
  void PlanGradients();
  std::uint64_t ComputeHash() const;
  const std::vector<int>& PresentAt(int place) const;

  Input input_;
  // By place: the units that are present, first what it needs; whose gradients end before it.
  std::vector<std::vector<int>> present_;
  std::vector<std::vector<int>> ending_;
  std::uint64_t hash_ = 0;
};

}  // namespace ds::zero
