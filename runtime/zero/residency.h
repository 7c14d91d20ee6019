#pragma once

// Residency: executes a ResidencyPlan on one rank, as the rank reaches the plan's positions
// (steps).
//
// Each pass has its own plan. A forward pass has an expected list of visits: the blocks of the
// model or of a chunk in order, or the visits of the last pass. It may visit units in any order and
// number; from an unexpected visit on it is planned again. Its marks in the autograd graph are
// known when it ends, and determine the backward pass, which may also take another path. A backward
// pass may go through the graphs of several forward passes, one after the other; each is a
// micro-batch.
//
// Ranks must take the same paths: the hash covers all plans.
//
// Threads: one thread at a time. Collective if the plan's actions are collective.

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

// The marks that one forward pass left in the autograd graph.
struct ForwardGraph {
  std::int64_t micro_batch = 0;  // the number of earlier passes with marks
  std::vector<int> marked = {};  // the visited units with outputs that need gradients, in order
  UnitRange units = {};          // the units with gradients of this micro-batch
};

// GradientEnd: the treatment of a micro-batch's gradients once they are complete.
enum class GradientEnd {
  kAsSharded,  // sharded ones are reduced, unsharded ones wait for the step
  kHeld,       // all stay unreduced
  kLast,       // no other micro-batch of the step follows: reduce all
  kUpdate,     // kLast, and each unit is updated as soon as its gradients are reduced
  kLater,      // incomplete: weight gradients are computed after the backward pass
};

// Callbacks of the object that updates units in passes of GradientEnd::kUpdate. When they are
// called, no communication is running except the prefetches that the plan has started.
struct UnitUpdates {
  std::function<void(int unit)> prepare;  // the unit's backward is next
  std::function<void(int unit)> update;   // its gradients are reduced
  std::function<void()> end = [] {};      // the pass has ended
};

class Residency {
 public:
  using GraphPtr = std::shared_ptr<ForwardGraph>;

  // `units` and `context` must outlive this object; no unit may be present. `model` is HashModel of
  // the units.
  Residency(const Context& context, const std::vector<std::unique_ptr<Unit>>& units,
            std::uint64_t model);

  void SetUpdates(UnitUpdates updates) { updates_ = std::move(updates); }

  // Begins a forward pass of these units, which is expected to visit `visits` one after the other.
  void BeginForward(UnitRange units, const std::vector<int>& visits);
  // Visits a unit: in a forward pass, or in a recomputation within a backward pass.
  void EnterForward(int unit);
  // Makes `unit` read the parameters of `other`, too, from its next visit on.
  void AddReads(int unit, int other);
  // The visits of the latest forward pass.
  const std::vector<int>& visits() const { return visits_; }

  // A mark in the autograd graph, after the outputs of a visited unit.
  struct Mark {
    GraphPtr graph;
    int index = 0;  // in graph->marked
  };
  // Records that the pass leaves a mark after the unit.
  Mark AddMark(int unit);
  // Called when the backward pass reaches a mark.
  void EnterBackward(const Mark& mark, GradientEnd end);
  // Ends the current micro-batch, or one of these units that reached no mark, and calls ReleaseAll.
  void EndBackward(UnitRange units, GradientEnd end);
  // Visits these units in backward order and adds the gradients that a pass of kLater has deferred.
  // Calls `arrive` for each unit, and for the earlier units that it may also read.
  void BringGradients(UnitRange units, GradientEnd end, const std::function<void(int)>& arrive);
  // Waits for all parameters that are being gathered or published.
  void AwaitParameters();

  // While true, gathered parameters stay present.
  void KeepParameters(bool keep);

  // Gathers these units at once, between passes. They stay until Evict.
  void Bring(const std::set<int>& units);
  // Releases all units except small ones that may stay.
  void ReleaseAll();
  // Releases those, too. Call it before their values or their memory change.
  void Evict();

  // A hash of the model and of all collective actions so far, with their plans. Equal on all ranks
  // of a group.
  std::uint64_t hash() const { return hash_; }

 private:
  void Start(std::vector<PassPosition> positions, GradientEnd end, UnitRange units,
             std::vector<PassPosition> expected = {});
  void EndMicroBatch();
  void StartBackward(const GraphPtr& graph, GradientEnd end);
  // Plan the rest of the pass, from an unexpected visit on. PlanBackward(nullopt): from the first
  // pending mark on.
  void PlanForward(const PassPosition& first);
  void PlanBackward(const std::optional<PassPosition>& first);
  void CheckIsNotUpdated(int unit) const;
  // Returns the next position of this kind after the current one.
  std::optional<int> Find(PassPosition::Kind kind, int unit = 0) const;
  void GoTo(int index);
  // Calls the update callbacks that follow the actions at the current position.
  void Update(const std::vector<Action>& actions);
  void Execute(const Action& action);

  const Context& context_;
  const std::vector<std::unique_ptr<Unit>>& units_;
  std::vector<PlannedUnit> planned_;
  std::vector<int> present_;
  std::vector<int> fetched_;
  std::optional<ResidencyPlan> plan_;
  bool plan_is_stale_ = false;  // made before AddReads
  bool keeps_parameters_ = false;
  GradientEnd end_ = {};  // of the current pass
  UnitUpdates updates_;
  int at_ = -1;       // index in the plan
  GraphPtr forward_;  // of the latest forward pass
  std::vector<int> visits_;
  // These describe the current backward pass; the graph is null outside one.
  GraphPtr graph_;
  std::vector<int> pending_;        // marks that it has not reached, the next one first
  std::vector<int> planned_marks_;  // by position of the plan
  // The units with gradients that have ended in the micro-batch, and with a reduction in flight.
  std::vector<int> ended_, reducing_;
  std::int64_t micro_batches_ = 0;
  std::uint64_t hash_;
};

}  // namespace ds::zero
