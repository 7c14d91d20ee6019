#include "runtime/zero/plan/step_memory.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/zero/plan/bucket_sizes.h"
#include "runtime/zero/plan/pool_sizes.h"

namespace ds::zero {
namespace {

// A bucket, and what of its gradients is there.
struct SimulatedBucket : BucketSizes {
  bool has_block = false;    // the pooled buffer of sharded gradients
  bool has_whole = false;    // that of whole ones
  bool has_own = false;      // the reduced shard
  bool is_reducing = false;  // a call is under way
};

// A rank on its way through a step.
class Simulation {
 public:
  explicit Simulation(const StepMemoryInput& input) : input_(input) {
    DS_CHECK(input.activations.size() == input.units.size());
    const MeasuredModel model = MeasureBuckets(input);
    state_ = model.here;
    result_.away = model.away;
    for (std::size_t i = 0; i < input.units.size(); ++i) AddUnit(input.units[i], model.units[i]);
  }

  StepMemory Run() {
    RunStep();
    result_.first_step_peak = result_.peak.total();
    RunStep();  // with the buffers that the pool has kept
    result_.between_steps = now();
    return result_;
  }

 private:
  void AddUnit(const UnitShape& shape, const std::vector<BucketSizes>& sizes);
  void RunStep();
  void Forward(std::int64_t micro_batch);
  void Backward(std::int64_t micro_batch, bool is_last);
  void EndStep();

  ResidencyPlan MakePlan(std::vector<Place> places, std::vector<Place> expected,
                         bool is_last) const;
  void Execute(const ResidencyPlan& plan, int place);
  void Execute(const Action& action);
  void BringParameters(int unit, int sign);
  void AcquireGradients(int unit);
  void BeginReduction(SimulatedBucket* bucket);
  void EndReduction(SimulatedBucket* bucket);
  void Update(SimulatedBucket* bucket);
  bool CopiesToTravel() const { return input_.travel != input_.types.gradient; }

  std::vector<SimulatedBucket>& buckets(int unit) {
    return buckets_[static_cast<std::size_t>(unit)];
  }
  HeldMemory now(std::int64_t activations = 0, std::int64_t copies = 0) const;
  // The rank holds this beside its flat buffers, for a moment.
  void Note(const std::string& when, std::int64_t activations, std::int64_t copies = 0);

  const StepMemoryInput& input_;
  bool updates_ = false;  // in the backward pass that this is in
  std::vector<PlannedUnit> planned_;
  std::vector<std::vector<SimulatedBucket>> buckets_;  // by unit
  HeldMemory state_;  // what is there from the beginning to the end, and gradients
  PoolSizes pool_;
  std::vector<int> present_, fetched_;
  std::int64_t kept_ = 0;  // activations, of the blocks that the forward pass is through with
  StepMemory result_;
};

std::string NameOf(const char* pass, int block) {
  return std::string("the ") + pass + " pass of block " + std::to_string(block);
}

void Simulation::AddUnit(const UnitShape& shape, const std::vector<BucketSizes>& sizes) {
  PlannedUnit planned{.also_reads = shape.also_reads, .backward_reads = shape.backward_reads};
  std::vector<SimulatedBucket>& unit = buckets_.emplace_back();
  for (const BucketSizes& bucket : sizes) {
    unit.push_back({bucket});
    planned.bytes += bucket.parameter_bytes;
    planned.fetched_bytes += bucket.fetched_bytes;
    planned.largest_bytes = std::max(planned.largest_bytes, bucket.largest);
    planned.trained = planned.trained || bucket.trained;
    if (bucket.trained) planned.reduced_bytes += bucket.travel_bytes;
    if (input_.sharding.parameters) {
      pool_.AddUser(bucket.parameter_bytes);
      pool_.Take(bucket.parameter_bytes);
    }
    if (bucket.trained && input_.sharding.gradients) pool_.AddUser(bucket.travel_bytes);
  }
  planned_.push_back(std::move(planned));
  if (!input_.sharding.parameters) return;
  for (const BucketSizes& bucket : sizes) pool_.Return(bucket.parameter_bytes);
}

ResidencyPlan Simulation::MakePlan(std::vector<Place> places, std::vector<Place> expected,
                                   bool is_last) const {
  return ResidencyPlan(
      {.units = planned_,
       .sharding = input_.sharding,
       .budgets = input_.budgets,
       .overlap = input_.overlap,
       .reduce_whole_gradients = is_last && (input_.overlap || input_.tiers.updates_in_backward),
       .places = std::move(places),
       .expected = std::move(expected),
       .present = present_,
       .fetched = fetched_});
}

void Simulation::Execute(const ResidencyPlan& plan, int place) {
  for (const Action& action : plan.ListActions(place - 1, place)) Execute(action);
}

void Simulation::Execute(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kGather:
      for (const SimulatedBucket& bucket : buckets(action.unit)) pool_.Take(bucket.parameter_bytes);
      present_.push_back(action.unit);
      return;
    case Action::Kind::kRelease:
      for (const SimulatedBucket& bucket : buckets(action.unit)) {
        pool_.Return(bucket.parameter_bytes);
      }
      std::erase(present_, action.unit);
      return;
    case Action::Kind::kReduce:
      for (SimulatedBucket& bucket : buckets(action.unit)) {
        if (!bucket.trained) continue;
        if (input_.gradient_ranks == 1 && !input_.sharding.optimizer) {
          if (updates_) Update(&bucket);
          continue;
        }
        BeginReduction(&bucket);
        if (!input_.overlap) EndReduction(&bucket);
      }
      return;
    case Action::Kind::kAwaitGradients:
      for (SimulatedBucket& bucket : buckets(action.unit)) EndReduction(&bucket);
      return;
    case Action::Kind::kFetch:
      fetched_.push_back(action.unit);
      return BringParameters(action.unit, 1);
    case Action::Kind::kStow:
      std::erase(fetched_, action.unit);
      return BringParameters(action.unit, -1);
    case Action::Kind::kKeepWhole:
    case Action::Kind::kAwaitParameters:
      return;
  }
}

// From the host to the GPU, or back. What comes from files is counted among their buffers.
void Simulation::BringParameters(int unit, int sign) {
  if (input_.tiers.parameters != Rest::kHost) return;
  for (const SimulatedBucket& bucket : buckets(unit)) {
    state_.parameters += sign * bucket.fetched_bytes;
  }
}

void Simulation::AcquireGradients(int unit) {
  for (SimulatedBucket& bucket : buckets(unit)) {
    if (!bucket.trained) continue;
    EndReduction(&bucket);
    if (input_.sharding.gradients) {
      if (!std::exchange(bucket.has_block, true)) pool_.Take(bucket.travel_bytes);
    } else if (!std::exchange(bucket.has_whole, true)) {
      state_.gradients += bucket.gradient_bytes;
    }
  }
}

void Simulation::BeginReduction(SimulatedBucket* bucket) {
  bucket->is_reducing = true;
  const bool into_shard = input_.sharding.optimizer;
  if (into_shard && !std::exchange(bucket->has_own, true) && bucket->own_rest == Rest::kHere) {
    state_.gradients += bucket->own_bytes;
  }
  const bool copies = !input_.sharding.gradients && CopiesToTravel();
  Note("the reduction of gradients", kept_, copies ? bucket->travel_bytes : 0);
}

void Simulation::EndReduction(SimulatedBucket* bucket) {
  if (!std::exchange(bucket->is_reducing, false)) return;
  if (std::exchange(bucket->has_block, false)) pool_.Return(bucket->travel_bytes);
  if (input_.sharding.optimizer && std::exchange(bucket->has_whole, false)) {
    state_.gradients -= bucket->gradient_bytes;
  }
  if (updates_) Update(bucket);
}

// In the backward pass: its gradient goes.
void Simulation::Update(SimulatedBucket* bucket) {
  const HeldMemory before = state_;
  state_.master_weights += bucket->brought_masters;
  state_.optimizer_state += bucket->brought_state;
  Note("the update", kept_);
  state_ = before;
  if (std::exchange(bucket->has_own, false) && bucket->own_rest == Rest::kHere) {
    state_.gradients -= bucket->own_bytes;
  }
  if (std::exchange(bucket->has_whole, false)) state_.gradients -= bucket->gradient_bytes;
}

void Simulation::RunStep() {
  for (std::int64_t m = 0; m < input_.micro_batches; ++m) {
    Forward(m);
    Backward(m, m + 1 == input_.micro_batches);
  }
  EndStep();
}

void Simulation::Forward(std::int64_t micro_batch) {
  const int count = static_cast<int>(input_.units.size());
  std::vector<Place> forward, backward;
  for (int unit = 0; unit < count; ++unit) {
    forward.push_back({Place::Kind::kForward, micro_batch, unit});
    backward.push_back({Place::Kind::kBackward, micro_batch, count - 1 - unit});
  }
  const bool keeps = input_.budgets.reuse_bytes > 0;
  const ResidencyPlan plan = MakePlan(forward, keeps ? backward : std::vector<Place>(), false);
  kept_ = input_.batch_bytes;
  for (int unit = 0; unit < count; ++unit) {
    Execute(plan, unit);
    const BlockActivations& made = input_.activations[static_cast<std::size_t>(unit)];
    Note(NameOf("forward", unit), kept_ + made.forward);
    kept_ += made.kept;
  }
}

void Simulation::Backward(std::int64_t micro_batch, bool is_last) {
  std::vector<Place> places;
  for (int unit = static_cast<int>(input_.units.size()) - 1; unit >= 0; --unit) {
    places.push_back({Place::Kind::kBackward, micro_batch, unit});
  }
  places.push_back({Place::Kind::kEndOfMicroBatch, micro_batch});
  const ResidencyPlan plan = MakePlan(places, {}, is_last);
  updates_ = is_last && input_.tiers.updates_in_backward;
  for (int i = 0; i + 1 < static_cast<int>(places.size()); ++i) {
    Execute(plan, i);
    const int unit = places[static_cast<std::size_t>(i)].unit;
    const BlockActivations& made = input_.activations[static_cast<std::size_t>(unit)];
    for (const int other : input_.units[static_cast<std::size_t>(unit)].also_reads) {
      AcquireGradients(other);
    }
    AcquireGradients(unit);
    kept_ -= made.kept;
    Note(NameOf("backward", unit), kept_ + made.backward);
  }
  Execute(plan, static_cast<int>(places.size()) - 1);
  updates_ = false;
  Execute(MakePlan({{Place::Kind::kRest}}, {}, false), 0);
}

void Simulation::EndStep() {
  kept_ = input_.batch_bytes;
  for (std::vector<SimulatedBucket>& unit : buckets_) {
    for (SimulatedBucket& bucket : unit) {
      if (!bucket.has_whole || !input_.sharding.optimizer) continue;
      BeginReduction(&bucket);
      EndReduction(&bucket);
    }
  }
  const HeldMemory before = state_;
  for (const std::vector<SimulatedBucket>& unit : buckets_) {
    for (const SimulatedBucket& bucket : unit) {
      if (input_.tiers.updates_in_backward) continue;
      if (input_.updates_in_turns) state_ = before;
      state_.master_weights += bucket.brought_masters;
      state_.optimizer_state += bucket.brought_state;
      Note("the update", kept_);
    }
  }
  state_ = before;
  state_.gradients = 0;
  for (std::vector<SimulatedBucket>& unit : buckets_) {
    for (SimulatedBucket& bucket : unit) bucket.has_whole = bucket.has_own = false;
  }
}

HeldMemory Simulation::now(std::int64_t activations, std::int64_t copies) const {
  HeldMemory held = state_;
  held.comm_buffers = pool_.held_bytes() + copies;
  held.activations = activations;
  return held;
}

void Simulation::Note(const std::string& when, std::int64_t activations, std::int64_t copies) {
  result_.peak_activations = std::max(result_.peak_activations, activations);
  const HeldMemory held = now(activations, copies);
  if (held.total() <= result_.peak.total()) return;
  result_.peak = held;
  result_.when = when;
}

}  // namespace

StepMemory PlanStepMemory(const StepMemoryInput& input) { return Simulation(input).Run(); }

}  // namespace ds::zero
