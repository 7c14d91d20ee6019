#pragma once

// Residency: does on one rank what ResidencyPlan says, as the rank comes to the plan's places.
//
// Each pass has a plan of its own: a forward pass is that of units in order, all or a stage's
// chunk, and what its marks in the autograd graph will lead to is known when it ends. A backward
// pass may lead through the graphs of several forward passes, one after the other, each a
// micro-batch.
//
// Threads: one thread at a time. Collective where the plan's actions are.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "runtime/plan/zero/residency_plan.h"
#include "runtime/zero/storage/context.h"
#include "runtime/zero/unit.h"

namespace ds::zero {

// The marks that one forward pass has left in the autograd graph.
struct ForwardGraph {
  std::int64_t micro_batch = 0;  // counts such passes
  std::vector<int> marked = {};  // units, ascending: whose outputs have gradients
  UnitRange units = {};          // that it leads through
};

// GradientEnd says what becomes of the gradients of a micro-batch when they are complete.
enum class GradientEnd {
  kAsSharded,  // sharded ones are reduced, whole ones wait for the step
  kHeld,       // all of them stay whole
  kLast,       // no other micro-batch of the step follows, so that none has to wait for one
  kUpdate,     // the same, and each unit is updated as soon as its gradients are there
  kLater,      // they are not complete: weights have theirs behind the backward pass
};

// Whoever updates units, in passes of GradientEnd::kUpdate. All are called with nothing under way
// but what the rank begins ahead.
struct UnitUpdates {
  std::function<void(int unit)> prepare;  // the unit's backward is next
  std::function<void(int unit)> update;   // its gradients have ended
  std::function<void()> end = [] {};      // the pass has
};

class Residency {
 public:
  using GraphPtr = std::shared_ptr<const ForwardGraph>;

  // `units` and `context` are borrowed; no unit is present. `model`: HashModel of the units.
  Residency(const Context& context, const std::vector<std::unique_ptr<Unit>>& units,
            std::uint64_t model);

  void SetUpdates(UnitUpdates updates) { updates_ = std::move(updates); }

  // Begins a forward pass, which then comes to these units in order.
  std::shared_ptr<ForwardGraph> BeginForward(UnitRange units);
  void EnterForward(int unit);
  // Notes that the pass leaves a mark behind the unit.
  void AddMark(int unit, ForwardGraph* graph);

  // Comes to a mark of the graph.
  void EnterBackward(const GraphPtr& graph, int unit, GradientEnd end);
  // Ends the micro-batch in progress, or one of these units that has come to no mark, and rests.
  void EndBackward(UnitRange units, GradientEnd end);
  // Goes through these units as a backward pass does, and brings the gradients of one of kLater:
  // `arrive` is called for each, and for those before them that they may also read.
  void BringGradients(UnitRange units, GradientEnd end, const std::function<void(int)>& arrive);
  // Waits for all parameters that are being gathered or published.
  void AwaitParameters();

  // From here on what is gathered stays, until it is not to be kept any longer.
  void KeepParameters(bool keep);

  // Between passes: brings these units at once, until Evict.
  void Bring(const std::set<int>& units);
  // Takes all units away but small ones that stay.
  void Rest();
  // Takes those away, too: their values, or their memory, will be others.
  void Evict();

  // Hashes of which model ranks have done what together, by which plans: all of a group get the
  // same.
  std::uint64_t hash() const { return hash_; }

 private:
  void Start(std::vector<Place> places, GradientEnd end, UnitRange units,
             std::vector<Place> expected = {});
  void StartBackward(const GraphPtr& graph, GradientEnd end);
  // The place ahead of where the rank is.
  std::optional<int> Find(Place::Kind kind, int unit = 0) const;
  void GoTo(int place);
  // Does what follows the actions at the place where the rank is.
  void Update(const std::vector<Action>& actions);
  void Execute(const Action& action);

  const Context& context_;
  const std::vector<std::unique_ptr<Unit>>& units_;
  std::vector<PlannedUnit> planned_;
  std::vector<int> present_;
  std::vector<int> fetched_;
  std::optional<ResidencyPlan> plan_;
  bool keeps_parameters_ = false;
  GradientEnd end_ = {};  // of the pass
  UnitUpdates updates_;
  int at_ = -1;     // in the plan
  GraphPtr graph_;  // that the backward pass is in
  std::int64_t micro_batches_ = 0;
  std::uint64_t hash_;
};

}  // namespace ds::zero
