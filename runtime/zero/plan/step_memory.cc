#include "runtime/zero/plan/step_memory.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/zero/plan/simulated_bucket.h"

namespace ds::zero {
namespace {

std::string NameOf(const char* pass, int block) {
  return std::string("the ") + pass + " pass of block " + std::to_string(block);
}

void ForEach(std::vector<SimulatedBucket>& buckets, void (SimulatedBucket::*move)()) {
  for (SimulatedBucket& bucket : buckets) (bucket.*move)();
}

// A rank on its way through a step.
class Simulation {
 public:
  explicit Simulation(const StepMemoryInput& input) : input_(input) {
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
  void RunMicroBatches();
  void RunPasses();
  void Forward(const Pass& pass);
  void Backward(const Pass& pass, bool is_last);
  void BringWeightGradients(const Pass& pass);
  void EndStep();
  void Update();

  UnitRange UnitsOf(const Pass& pass) const {
    return pass.units.value_or(UnitRange{0, static_cast<int>(input_.units.size())});
  }
  std::vector<Place> ListBackward(const Pass& pass) const;
  struct PassEnd {
    std::vector<Place> expected = {};
    std::optional<UnitRange> units = {};
    bool is_last = false, later = false;  // so come gradients of weights
  };
  ResidencyPlan MakePlan(std::vector<Place> places, PassEnd end) const;
  void Execute(const ResidencyPlan& plan, int place);
  void Execute(const Action& action);
  void Gather(int unit);
  void Reduce(int unit);
  // Reduces at once, or begins to.
  void Reduce(SimulatedBucket* bucket, bool awaits);
  void EndReduction(SimulatedBucket* bucket);
  void AcquireGradients(int unit, bool of_experts);
  void AcquireGradientsOfAll(int unit) {  // and of those that it also reads, which have no experts
    const auto& reads = input_.units[static_cast<std::size_t>(unit)].also_reads;
    for (const int other : reads) AcquireGradients(other, /*of_experts=*/false);
    AcquireGradients(unit, /*of_experts=*/false);
  }
  const BlockActivations& ActivationsOf(int unit) const {
    return input_.activations[static_cast<std::size_t>(unit)];
  }
  int BlockOf(int unit) const {
    return input_.blocks.empty() ? unit : input_.blocks[static_cast<std::size_t>(unit)];
  }
  void UpdateEarly(SimulatedBucket* bucket);

  std::vector<SimulatedBucket>& buckets(int unit) {
    return buckets_[static_cast<std::size_t>(unit)];
  }
  template <typename Visit>
  void ForEachBucket(Visit visit) {
    for (std::vector<SimulatedBucket>& unit : buckets_) {
      for (SimulatedBucket& bucket : unit) visit(bucket);
    }
  }

  // All on which it depends what comes next.
  struct State {
    RankBooks books;
    std::vector<int> present = {}, fetched = {};
    std::vector<SimulatedBucket::Presence> buckets = {};

    friend bool operator==(const State&, const State&) = default;
  };
  State Capture();

  HeldMemory now(std::int64_t activations = 0, std::int64_t copies = 0) const;
  // The rank holds this beside its flat buffers, for a moment.
  void Note(const std::string& when, std::int64_t activations, std::int64_t copies = 0);

  const StepMemoryInput& input_;
  int first_trained_ = 0;  // the backward pass ends here
  bool updates_ = false;   // in the backward pass that this is in
  std::vector<PlannedUnit> planned_;
  RankBooks books_;
  std::vector<std::vector<SimulatedBucket>> buckets_;  // by unit
  std::vector<int> present_, fetched_;
  std::int64_t kept_ = 0;       // activations of passes that are over, for those that are to come
  std::int64_t returning_ = 0;  // of these, the gradient that the stage before is being sent
  StepMemory result_;
};

void Simulation::AddUnit(const UnitShape& shape, const std::vector<BucketSizes>& sizes) {
  PlannedUnit planned{.also_reads = shape.also_reads, .backward_reads = shape.backward_reads};
  std::vector<SimulatedBucket>& unit = buckets_.emplace_back();
  for (const BucketSizes& bucket : sizes) {
    unit.emplace_back(bucket, input_, &books_);
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

ResidencyPlan Simulation::MakePlan(std::vector<Place> places, PassEnd end) const {
  const bool is_part =
      end.units && (end.units->first > 0 || end.units->end < static_cast<int>(input_.units.size()));
  return ResidencyPlan({.units = planned_,
                        .sharding = input_.sharding,
                        .budgets = input_.budgets,
                        .overlap = input_.overlap,
                        .reduce_whole_gradients =
                            end.is_last && (input_.overlap || input_.tiers.updates_in_backward),
                        .gradients_come_later = end.later,
                        .places = std::move(places),
                        .expected = std::move(end.expected),
                        .present = present_,
                        .fetched = fetched_,
                        .pass = is_part ? end.units : std::nullopt});
}

void Simulation::Execute(const ResidencyPlan& plan, int place) {
  for (const Action& action : plan.ListActions(place - 1, place)) Execute(action);
}

void Simulation::Execute(const Action& action) {
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
      return;
  }
}

void Simulation::Gather(int unit) {
  for (SimulatedBucket& bucket : buckets(unit)) {
    if (!bucket.sharding().parameters) continue;
    bucket.BeginGather();
    if (bucket.bytes().gather_buffers > 0) Note("the gather of parameters", kept_);
    if (!input_.overlap) bucket.EndGather();
  }
  present_.push_back(unit);
}

void Simulation::Reduce(int unit) {
  for (SimulatedBucket& bucket : buckets(unit)) {
    if (!bucket.trained()) continue;
    if (!bucket.is_alone()) {
      Reduce(&bucket, !input_.overlap);
    } else if (updates_) {
      UpdateEarly(&bucket);
    }
  }
}

void Simulation::Reduce(SimulatedBucket* bucket, bool awaits) {
  bucket->BeginReduction();
  Note("the reduction of gradients", kept_, bucket->travelling_copy());
  if (awaits) EndReduction(bucket);
}

void Simulation::EndReduction(SimulatedBucket* bucket) {
  const bool ends = bucket->presence().reducing;
  bucket->EndReduction();
  if (ends && updates_) UpdateEarly(bucket);
}

void Simulation::AcquireGradients(int unit, bool of_experts) {
  for (SimulatedBucket& bucket : buckets(unit)) {
    if (bucket.of_experts() != of_experts) continue;
    EndReduction(&bucket);
    bucket.AcquireGradients();
  }
}

// In the backward pass: its gradient goes.
void Simulation::UpdateEarly(SimulatedBucket* bucket) {
  bucket->BeginUpdate();
  Note("the update", kept_);
  bucket->EndUpdate();
  if (!input_.tiers.takes_back) bucket->DropGradients();
}

Simulation::State Simulation::Capture() {
  State state{.books = books_, .present = present_, .fetched = fetched_};
  ForEachBucket([&](const SimulatedBucket& bucket) { state.buckets.push_back(bucket.presence()); });
  return state;
}

// A micro-batch that begins as the one before has begun does what that has done, and so do all that
// follow, but for the last one.
void Simulation::RunMicroBatches() {
  State before;
  for (std::int64_t m = 0; m + 1 < input_.micro_batches; ++m) {
    State begin = Capture();
    if (m > 0 && begin == before) break;
    before = std::move(begin);
    Forward({.micro_batch = m});
    Backward({.kind = Pass::Kind::kBackward, .micro_batch = m}, /*is_last=*/false);
  }
  Forward({.micro_batch = input_.micro_batches - 1});
  Backward({.kind = Pass::Kind::kBackward, .micro_batch = input_.micro_batches - 1},
           /*is_last=*/true);
}

// Where chunks come one by one, the executor has no last pass.
void Simulation::RunPasses() {
  using Kind = Pass::Kind;
  const auto is_backward = [](const Pass& pass) { return pass.kind == Kind::kBackward; };
  auto left = std::count_if(input_.passes.begin(), input_.passes.end(), is_backward);
  for (const Pass& pass : input_.passes) {
    if (is_backward(pass)) --left;
    if (pass.kind == Kind::kForward) {
      Forward(pass);
    } else if (pass.kind == Kind::kWeightGradient) {
      BringWeightGradients(pass);
    } else {
      Backward(pass, is_backward(pass) && left == 0 && !pass.units);
    }
  }
}

void Simulation::RunStep() {
  kept_ = returning_ = 0;
  input_.passes.empty() ? RunMicroBatches() : RunPasses();
  EndStep();
}

std::vector<Place> Simulation::ListBackward(const Pass& pass) const {
  const UnitRange units = UnitsOf(pass);
  std::vector<Place> places;
  for (int unit = units.end - 1; unit >= std::max(units.first, first_trained_); --unit) {
    places.push_back({Place::Kind::kBackward, pass.micro_batch, unit});
  }
  return places;
}

void Simulation::Forward(const Pass& pass) {
  const UnitRange units = UnitsOf(pass);
  std::vector<Place> places;
  for (int unit = units.first; unit < units.end; ++unit) {
    places.push_back({Place::Kind::kForward, pass.micro_batch, unit});
  }
  const bool keeps = input_.budgets.reuse_bytes > 0;
  const ResidencyPlan plan =
      MakePlan(std::move(places),
               {.expected = keeps ? ListBackward(pass) : std::vector<Place>(), .units = units});
  if (pass.begins) kept_ += input_.batch_bytes;
  for (int unit = units.first; unit < units.end; ++unit) {
    Execute(plan, unit - units.first);
    const BlockActivations& made = ActivationsOf(unit);
    Note(NameOf("forward", BlockOf(unit)), kept_ + made.forward);
    kept_ += made.kept;
  }
  if (pass.sends) kept_ += input_.sent_bytes;
}

void Simulation::Backward(const Pass& pass, bool is_last) {
  std::vector<Place> places = ListBackward(pass);
  places.push_back({Place::Kind::kEndOfMicroBatch, pass.micro_batch});
  const bool later = pass.kind == Pass::Kind::kInputGradient;
  const ResidencyPlan plan =
      MakePlan(places, {.units = UnitsOf(pass), .is_last = is_last, .later = later});
  updates_ = is_last && input_.tiers.updates_in_backward;
  const std::int64_t sent = pass.sends ? input_.sent_bytes : 0;
  if (pass.was_handed) kept_ -= input_.handed_bytes;
  for (int i = 0; i + 1 < static_cast<int>(places.size()); ++i) {
    Execute(plan, i);
    const int unit = places[static_cast<std::size_t>(i)].unit;
    const BlockActivations& made = ActivationsOf(unit);
    if (!later) AcquireGradientsOfAll(unit);
    kept_ -= made.kept;
    Note(NameOf("backward", BlockOf(unit)),
         kept_ + (later ? std::max(made.backward, made.delaying) : made.backward));
    // What goes back to experts of other ranks is there before the gradients of this one's are.
    if (!later) AcquireGradients(unit, /*of_experts=*/true);
    Note(NameOf("backward", BlockOf(unit)), kept_ + made.kept);
    if (i == 0) kept_ += sent;  // its gradient; the last block's own has it already
    if (later) kept_ += made.delayed;
  }
  Execute(plan, static_cast<int>(places.size()) - 1);
  updates_ = false;
  Execute(MakePlan({{Place::Kind::kRest}}, {}), 0);
  kept_ -= (pass.begins ? input_.batch_bytes : 0) + 2 * sent;
  if (pass.hands_back) kept_ += input_.handed_bytes;
  if (!pass.returns) return;
  kept_ += input_.returned_bytes - std::exchange(returning_, input_.returned_bytes);
}

void Simulation::BringWeightGradients(const Pass& pass) {
  const UnitRange units = UnitsOf(pass);
  std::vector<Place> places;
  for (int unit = units.end - 1; unit >= units.first; --unit) {
    places.push_back({Place::Kind::kWeightGradient, pass.micro_batch, unit});
  }
  places.push_back({Place::Kind::kEndOfMicroBatch, pass.micro_batch});
  const ResidencyPlan plan = MakePlan(places, {.units = units});
  for (int i = 0; i + 1 < static_cast<int>(places.size()); ++i) {
    Execute(plan, i);
    const int unit = places[static_cast<std::size_t>(i)].unit;
    AcquireGradientsOfAll(unit);
    AcquireGradients(unit, /*of_experts=*/true);
    Note(NameOf("weights'", BlockOf(unit)), kept_);
    kept_ -= ActivationsOf(unit).delayed;
  }
  Execute(plan, static_cast<int>(places.size()) - 1);
}

void Simulation::EndStep() {
  kept_ = input_.batch_bytes;
  ForEachBucket([&](SimulatedBucket& bucket) {
    if (!bucket.has_whole_gradients() || !bucket.sharding().optimizer) return;
    Reduce(&bucket, /*awaits=*/true);
  });
  Update();
  books_.held.gradients = 0;
  ForEachBucket([](SimulatedBucket& bucket) { bucket.EndStep(); });
}

void Simulation::Update() {
  if (input_.tiers.updates_in_backward && !input_.tiers.takes_back) return;
  ForEachBucket([&](SimulatedBucket& bucket) {
    bucket.BeginUpdate();
    Note("the update", kept_);
    if (input_.updates_in_turns) bucket.EndUpdate();
  });
  if (!input_.updates_in_turns) ForEachBucket([](SimulatedBucket& each) { each.EndUpdate(); });
}

HeldMemory Simulation::now(std::int64_t activations, std::int64_t copies) const {
  HeldMemory held = books_.held;
  held.comm_buffers += books_.pool.held_bytes() + copies;
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
