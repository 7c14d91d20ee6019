#include "runtime/plan/zero/step_memory.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/plan/zero/step_simulation.h"

namespace ds::zero {
namespace {

void ForEach(std::vector<SimulatedBucket>& buckets, void (SimulatedBucket::*move)()) {
  for (SimulatedBucket& bucket : buckets) (bucket.*move)();
}

}  // namespace

StepSimulation::StepSimulation(const StepMemoryInput& input) : input_(input) {
  DS_CHECK(input.activations.size() == input.units.size());
  const MeasuredModel model = MeasureBuckets(input);
  books_.held = model.here;
  result_.away = model.away;
  for (std::size_t i = 0; i < input.units.size(); ++i) AddUnit(input.units[i], model.units[i]);
  const auto trains = [](const PlannedUnit& unit) { return unit.trained; };
  if (input.input_needs_gradient) return;
  const auto first = std::find_if(planned_.begin(), planned_.end(), trains);
  first_trained_ = static_cast<int>(first - planned_.begin());
}

StepMemory StepSimulation::Run() {
  RunStep();
  result_.first_step_peak = result_.peak.total();
  RunStep();  // now with the pool's kept buffers
  result_.between_steps = now();
  result_.windows = input_.windows;
  return result_;
}

void StepSimulation::AddUnit(const UnitShape& shape, const std::vector<BucketSizes>& sizes) {
  PlannedUnit planned{.also_reads = shape.also_reads, .backward_reads = shape.backward_reads};
  std::vector<SimulatedBucket>& unit = buckets_.emplace_back();
  for (const BucketSizes& bucket : sizes) {
    unit.emplace_back(static_cast<int>(planned_.size()), bucket, input_, &books_);
    planned.bytes += bucket.bytes.parameters;
    planned.fetched_bytes += bucket.fetched_bytes;
    planned.largest_bytes = std::max(planned.largest_bytes, bucket.bytes.largest);
    planned.trained = planned.trained || bucket.trained;
    planned.reduced_bytes += bucket.bytes.travelling;
  }
  planned_.push_back(std::move(planned));
  for (const BucketSizes& bucket : sizes) {
    if (bucket.sharding.parameters) books_.pool.Return(bucket.bytes.parameters);
  }
}

ResidencyPlan StepSimulation::MakePlan(std::vector<Place> places, PassEnd end) const {
  const bool is_part =
      end.units && (end.units->first > 0 || end.units->end < static_cast<int>(input_.units.size()));
  return ResidencyPlan({.units = planned_,
                        .sharding = input_.sharding,
                        .budgets = input_.budgets,
                        .overlap = input_.overlap,
                        .keeps_parameters = keeps_parameters_,
                        .hold_gradients = end.held,
                        .reduce_whole_gradients =
                            end.is_last && (input_.overlap || input_.tiers.updates_in_backward),
                        .gradients_come_later = end.later,
                        .places = std::move(places),
                        .expected = std::move(end.expected),
                        .present = present_,
                        .fetched = fetched_,
                        .pass = is_part ? end.units : std::nullopt});
}

void StepSimulation::Execute(const ResidencyPlan& plan, int place) {
  for (const Action& action : plan.ListActions(place - 1, place)) Execute(action);
}

void StepSimulation::Execute(const Action& action) {
  std::vector<SimulatedBucket>& unit = buckets(action.unit);
  switch (action.kind) {
    case Action::Kind::kGather:
      return Gather(action.unit);
    case Action::Kind::kRelease:
      std::erase(present_, action.unit);
      return ForEach(unit, &SimulatedBucket::Release);
    case Action::Kind::kReduce:
      return Reduce(action.unit);
    case Action::Kind::kAwaitParameters:
      return ForEach(unit, &SimulatedBucket::EndGather);
    case Action::Kind::kAwaitGradients:
      for (SimulatedBucket& bucket : unit) EndReduction(&bucket);
      return;
    case Action::Kind::kFetch:
      fetched_.push_back(action.unit);
      return ForEach(unit, &SimulatedBucket::Fetch);
    case Action::Kind::kStow:
      std::erase(fetched_, action.unit);
      return ForEach(unit, &SimulatedBucket::Stow);
    case Action::Kind::kKeepWhole:
      for (SimulatedBucket& bucket : unit) {  // units without a gradient contribute zeros
        if (bucket.sharding().gradients) bucket.AcquireGradients();
      }
      return;
  }
}

void StepSimulation::Gather(int unit) {
  for (SimulatedBucket& bucket : buckets(unit)) {
    if (!bucket.sharding().parameters) continue;
    traffic()->all_gather += bucket.gathered_bytes();
    bucket.BeginGather();
    if (bucket.bytes().gather_buffers > 0) Note("the gather of parameters", kept_);
    if (!input_.overlap) bucket.EndGather();
  }
  present_.push_back(unit);
}

void StepSimulation::Reduce(int unit) {
  for (SimulatedBucket& bucket : buckets(unit)) {
    if (!bucket.trained()) continue;
    if (!bucket.is_alone()) {
      Reduce(&bucket, !input_.overlap);
    } else if (updates_) {
      UpdateEarly(&bucket);
    }
  }
}

void StepSimulation::Reduce(SimulatedBucket* bucket, bool awaits) {
  bucket->CountReduction(traffic());
  bucket->BeginReduction();
  Note("the reduction of gradients", kept_, bucket->travelling_copy());
  if (awaits) EndReduction(bucket);
}

void StepSimulation::EndReduction(SimulatedBucket* bucket) {
  const bool ends = bucket->presence().reducing;
  bucket->EndReduction();
  if (ends && updates_) UpdateEarly(bucket);
}

void StepSimulation::AcquireGradients(int unit, bool of_experts) {
  for (SimulatedBucket& bucket : buckets(unit)) {
    if (bucket.of_experts() != of_experts) continue;
    EndReduction(&bucket);
    bucket.AcquireGradients();
  }
}

void StepSimulation::UpdateEarly(SimulatedBucket* bucket) {
  ForEachBucket([unit = bucket->unit()](SimulatedBucket& each) {
    if (each.unit() != unit) each.EndUpdateBeside();
  });
  bucket->BeginUpdate();
  Note("the update", kept_);
  bucket->EndEarlyUpdate();
}

StepSimulation::State StepSimulation::Capture() {
  State state{.books = books_, .present = present_, .fetched = fetched_};
  ForEachBucket([&](const SimulatedBucket& bucket) { state.buckets.push_back(bucket.presence()); });
  return state;
}

void StepSimulation::EndStep() {
  kept_ = input_.batch_bytes;
  ForEachBucket([&](SimulatedBucket& bucket) {
    if (!bucket.has_whole_gradients() || !bucket.sharding().optimizer) return;
    Reduce(&bucket, /*awaits=*/true);
  });
  CountEnd();
  Update();
  books_.held.gradients = 0;
  ForEachBucket([](SimulatedBucket& bucket) { bucket.EndStep(); });
}

// Counts the unsharded gradients that no pass has reduced, and the publication of updated
// parameters.
void StepSimulation::CountEnd() {
  for (std::size_t unit = 0; unit < buckets_.size(); ++unit) {
    const bool present =
        std::find(present_.begin(), present_.end(), static_cast<int>(unit)) != present_.end();
    for (const SimulatedBucket& bucket : buckets_[unit]) bucket.CountEnd(present, traffic());
  }
}

void StepSimulation::Update() {
  if (input_.tiers.updates_in_backward && !input_.tiers.takes_back) return;
  ForEachBucket([&](SimulatedBucket& bucket) {
    bucket.BeginUpdate();
    Note("the update", kept_);
    if (input_.updates_in_turns) bucket.EndUpdate();
  });
  if (!input_.updates_in_turns) ForEachBucket([](SimulatedBucket& each) { each.EndUpdate(); });
}

HeldMemory StepSimulation::now(std::int64_t activations, std::int64_t copies) const {
  HeldMemory held = books_.held;
  held.comm_buffers += books_.pool.held_bytes() + copies;
  held.activations = activations;
  return held;
}

void StepSimulation::Note(const std::string& when, std::int64_t activations, std::int64_t copies) {
  result_.peak_activations = std::max(result_.peak_activations, activations);
  const HeldMemory held = now(activations, copies);
  if (held.total() <= result_.peak.total()) return;
  result_.peak = held;
  result_.when = when;
}

StepMemory PlanStepMemory(const StepMemoryInput& input) { return StepSimulation(input).Run(); }

}  // namespace ds::zero
