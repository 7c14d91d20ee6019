#include "runtime/plan/zero/step_memory.h"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/plan/zero/bucket_sizes.h"

namespace ds::zero {
namespace {

// Simulates one rank's memory through a step, by sizes.
class StepSimulation {
 public:
  // `input` must outlive this object.
  explicit StepSimulation(const StepMemoryInput& input);

  StepMemory Run();

 private:
  void AddUnit(const UnitShape& shape, const std::vector<BucketSizes>& sizes);
  void RunStep();
  void RunMicroBatches();
  void RunPasses();
  void BeginPass(const Pass& pass);
  void Forward(const Pass& pass);
  void Backward(const Pass& pass, bool is_last);
  bool IsHeld(const Pass& pass) const;
  void BringWeightGradients(const Pass& pass);
  void EndStep();
  void CountEnd();
  void Update();

  UnitRange UnitsOf(const Pass& pass) const {
    return pass.units.value_or(UnitRange{0, static_cast<int>(input_.units.size())});
  }
  std::vector<PassPosition> ListBackward(const Pass& pass) const;
  struct PassEnd {
    std::vector<PassPosition> expected = {};
    std::optional<UnitRange> units = {};
    bool is_last = false, later = false;  // later: weight gradients are delayed
    bool held = false;                    // sharded gradients stay unreduced
  };
  ResidencyPlan MakePlan(std::vector<PassPosition> positions, PassEnd end) const;
  void Execute(const ResidencyPlan& plan, int position);
  void Execute(const Action& action);
  void Gather(int unit);
  void Reduce(int unit);
  // Reduces at once, or begins to.
  void Reduce(SimulatedBucket* bucket, bool awaits);
  void EndReduction(SimulatedBucket* bucket);
  void AcquireGradients(int unit, bool of_experts);
  void AcquireGradientsOfAll(int unit) {  // and of units it also reads (no experts)
    const auto& reads = input_.units[static_cast<std::size_t>(unit)].also_reads;
    for (const int other : reads) AcquireGradients(other, /*of_experts=*/false);
    AcquireGradients(unit, /*of_experts=*/false);
  }
  const BlockActivations& ActivationsOf(int unit) const {
    return input_.activations[static_cast<std::size_t>(unit)];
  }
  // Returns "the forward pass of block 3".
  std::string NameOf(const char* pass, int unit) const {
    const std::string name = input_.names.empty() ? "block " + std::to_string(unit)
                                                  : input_.names[static_cast<std::size_t>(unit)];
    return std::string("the ") + pass + " pass of " + name;
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

  // The state that determines later results.
  struct State {
    RankBooks books;
    std::vector<int> present = {}, fetched = {};
    std::vector<SimulatedBucket::Presence> buckets = {};

    friend bool operator==(const State&, const State&) = default;
  };
  State Capture();
  StepTraffic AddUpTraffic() const;
  StepTraffic* traffic() { return &traffic_[micro_batch_]; }

  HeldMemory now(std::int64_t activations = 0, std::int64_t copies = 0) const;
  // Records a moment at which the rank also holds `activations` and `copies`.
  void Note(const std::string& when, std::int64_t activations, std::int64_t copies = 0);

  const StepMemoryInput& input_;
  int first_trained_ = 0;  // the backward pass ends at this unit
  bool updates_ = false;   // the current backward pass updates buckets
  bool keeps_parameters_ = false;
  std::int64_t last_micro_batch_ = 0;  // of the planned micro-batches
  std::vector<PlannedUnit> planned_;
  RankBooks books_;
  std::vector<std::vector<SimulatedBucket>> buckets_;  // by unit
  std::vector<int> present_, fetched_;
  std::int64_t saved_ = 0;        // activations of finished passes, needed by later passes
  std::int64_t returning_ = 0;    // of saved_: the gradient being sent to the previous stage
  std::int64_t micro_batch_ = 0;  // of the current pass
  std::map<std::int64_t, StepTraffic> traffic_;  // by micro-batch
  StepMemory result_;
};

void ForEach(std::vector<SimulatedBucket>& buckets, void (SimulatedBucket::*move)()) {
  for (SimulatedBucket& bucket : buckets) (bucket.*move)();
}

}  // namespace

// If a micro-batch begins in the same state as the one before, it and all following ones except the
// last repeat that one.
void StepSimulation::RunMicroBatches() {
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

// With model chunks there is no last pass: the executor has none.
void StepSimulation::RunPasses() {
  using Kind = Pass::Kind;
  const auto is_backward = [](const Pass& pass) { return pass.kind == Kind::kBackward; };
  for (const Pass& pass : input_.passes) {
    last_micro_batch_ = std::max(last_micro_batch_, pass.micro_batch);
  }
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

void StepSimulation::RunStep() {
  saved_ = returning_ = 0;
  traffic_.clear();
  keeps_parameters_ = input_.windows.parameters.full_step;
  input_.passes.empty() ? RunMicroBatches() : RunPasses();
  if (std::exchange(keeps_parameters_, false))
    Execute(MakePlan({{PassPosition::Kind::kBetweenPasses}}, {}), 0);
  StepTraffic sum = AddUpTraffic();
  traffic_.clear();
  EndStep();
  sum.Add(*traffic());
  result_.traffic = sum;
}

// Micro-batches that are not planned repeat one in the middle.
StepTraffic StepSimulation::AddUpTraffic() const {
  StepTraffic sum;
  for (const auto& [micro_batch, traffic] : traffic_) sum.Add(traffic);
  const auto planned = static_cast<std::int64_t>(traffic_.size());
  const auto middle = std::next(traffic_.begin(), planned / 2);
  if (planned < input_.micro_batches) sum.Add(middle->second, input_.micro_batches - planned);
  return sum;
}

// Follows the executor: gradients of chunks wait for the end of the step, others for the last
// micro-batch.
bool StepSimulation::IsHeld(const Pass& pass) const {
  const bool is_last = !pass.units && pass.micro_batch == last_micro_batch_;
  return input_.windows.gradients.full_step && !is_last;
}

std::vector<PassPosition> StepSimulation::ListBackward(const Pass& pass) const {
  const UnitRange units = UnitsOf(pass);
  std::vector<PassPosition> positions;
  for (int unit = units.end - 1; unit >= std::max(units.first, first_trained_); --unit) {
    positions.push_back({PassPosition::Kind::kBackward, pass.micro_batch, unit});
  }
  return positions;
}

// Counts the bytes sent to and received from neighbouring stages. No gradient goes to or past units
// before the first trained one. A later chunk of this stage always has trained units before it.
void StepSimulation::BeginPass(const Pass& pass) {
  micro_batch_ = pass.micro_batch;
  StepTraffic* const here = traffic();
  if (input_.passes.empty() || pass.kind == Pass::Kind::kWeightGradient) return;
  const UnitRange units = UnitsOf(pass);
  const bool forward = pass.kind == Pass::Kind::kForward;
  const bool after = forward || first_trained_ < units.end;
  const bool before = forward || input_.input_needs_gradient || units.first > 0;
  const int parts = forward ? input_.activation_parts : input_.gradient_parts;
  if (pass.sends && after) here->between_stages += input_.sent_bytes / parts;
  if (pass.returns && before) here->between_stages += input_.returned_bytes / parts;
}

void StepSimulation::Forward(const Pass& pass) {
  BeginPass(pass);
  const UnitRange units = UnitsOf(pass);
  std::vector<PassPosition> positions;
  for (int unit = units.first; unit < units.end; ++unit) {
    positions.push_back({PassPosition::Kind::kForward, pass.micro_batch, unit});
  }
  const bool keeps = input_.budgets.reuse_bytes > 0;
  const ResidencyPlan plan = MakePlan(
      std::move(positions),
      {.expected = keeps ? ListBackward(pass) : std::vector<PassPosition>(), .units = units});
  if (pass.begins) saved_ += input_.batch_bytes;
  for (int unit = units.first; unit < units.end; ++unit) {
    Execute(plan, unit - units.first);
    const BlockActivations& made = ActivationsOf(unit);
    Note(NameOf("forward", unit), saved_ + made.forward);
    saved_ += made.saved;
  }
  if (pass.sends) saved_ += input_.sent_bytes;
}

void StepSimulation::Backward(const Pass& pass, bool is_last) {
  BeginPass(pass);
  std::vector<PassPosition> positions = ListBackward(pass);
  positions.push_back({PassPosition::Kind::kEndOfMicroBatch, pass.micro_batch});
  const bool later = pass.kind == Pass::Kind::kInputGradient;
  const ResidencyPlan plan =
      MakePlan(positions,
               {.units = UnitsOf(pass), .is_last = is_last, .later = later, .held = IsHeld(pass)});
  updates_ = is_last && input_.tiers.updates_in_backward;
  const std::int64_t sent = pass.sends ? input_.sent_bytes : 0;
  if (pass.was_handed) saved_ -= input_.handed_bytes;
  for (int i = 0; i + 1 < static_cast<int>(positions.size()); ++i) {
    Execute(plan, i);
    const int unit = positions[static_cast<std::size_t>(i)].unit;
    const BlockActivations& made = ActivationsOf(unit);
    if (!later) AcquireGradientsOfAll(unit);
    saved_ -= made.saved;
    Note(NameOf("backward", unit),
         saved_ + (later ? std::max(made.backward, made.delaying) : made.backward));
    // The gradients sent back to other ranks' experts exist before this rank's expert gradients.
    if (!later) AcquireGradients(unit, /*of_experts=*/true);
    Note(NameOf("backward", unit), saved_ + made.saved);
    if (i == 0) saved_ += sent;  // its gradient; the last block has its own already
    if (later) saved_ += made.delayed;
  }
  Execute(plan, static_cast<int>(positions.size()) - 1);
  ForEachBucket([](SimulatedBucket& bucket) { bucket.FinishOverlappedUpdate(); });
  updates_ = false;
  Execute(MakePlan({{PassPosition::Kind::kBetweenPasses}}, {}), 0);
  saved_ -= (pass.begins ? input_.batch_bytes : 0) + 2 * sent;
  if (pass.hands_back) saved_ += input_.handed_bytes;
  if (!pass.returns) return;
  saved_ += input_.returned_bytes - std::exchange(returning_, input_.returned_bytes);
}

void StepSimulation::BringWeightGradients(const Pass& pass) {
  BeginPass(pass);
  const UnitRange units = UnitsOf(pass);
  std::vector<PassPosition> positions;
  for (int unit = units.end - 1; unit >= units.first; --unit) {
    positions.push_back({PassPosition::Kind::kWeightGradient, pass.micro_batch, unit});
  }
  positions.push_back({PassPosition::Kind::kEndOfMicroBatch, pass.micro_batch});
  const ResidencyPlan plan = MakePlan(positions, {.units = units, .held = IsHeld(pass)});
  for (int i = 0; i + 1 < static_cast<int>(positions.size()); ++i) {
    Execute(plan, i);
    const int unit = positions[static_cast<std::size_t>(i)].unit;
    AcquireGradientsOfAll(unit);
    AcquireGradients(unit, /*of_experts=*/true);
    Note(NameOf("weights'", unit), saved_);
    saved_ -= ActivationsOf(unit).delayed;
  }
  Execute(plan, static_cast<int>(positions.size()) - 1);
}

StepSimulation::StepSimulation(const StepMemoryInput& input) : input_(input) {
  DS_CHECK(input.activations.size() == input.units.size());
  const MeasuredModel model = MeasureBuckets(input);
  books_.held = model.here;
  result_.offload = model.offload;
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

ResidencyPlan StepSimulation::MakePlan(std::vector<PassPosition> positions, PassEnd end) const {
  const bool is_part =
      end.units && (end.units->first > 0 || end.units->end < static_cast<int>(input_.units.size()));
  return ResidencyPlan(
      {.units = planned_,
       .sharding = input_.sharding,
       .budgets = input_.budgets,
       .overlap = input_.overlap,
       .keeps_parameters = keeps_parameters_,
       .hold_gradients = end.held,
       .reduce_full_gradients = end.is_last && (input_.overlap || input_.tiers.updates_in_backward),
       .gradients_come_later = end.later,
       .positions = std::move(positions),
       .expected = std::move(end.expected),
       .present = present_,
       .fetched = fetched_,
       .pass = is_part ? end.units : std::nullopt});
}

void StepSimulation::Execute(const ResidencyPlan& plan, int position) {
  for (const Action& action : plan.ListActions(position - 1, position)) Execute(action);
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
    case Action::Kind::kOffload:
      std::erase(fetched_, action.unit);
      return ForEach(unit, &SimulatedBucket::Offload);
    case Action::Kind::kKeepFull:
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
    if (bucket.bytes().gather_buffers > 0) Note("the gather of parameters", saved_);
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
  Note("the reduction of gradients", saved_, bucket->travelling_copy());
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
    if (each.unit() != unit) each.FinishOverlappedUpdate();
  });
  bucket->BeginUpdate();
  Note("the update", saved_);
  bucket->EndEarlyUpdate();
}

StepSimulation::State StepSimulation::Capture() {
  State state{.books = books_, .present = present_, .fetched = fetched_};
  ForEachBucket([&](const SimulatedBucket& bucket) { state.buckets.push_back(bucket.presence()); });
  return state;
}

void StepSimulation::EndStep() {
  saved_ = input_.batch_bytes;
  ForEachBucket([&](SimulatedBucket& bucket) {
    if (!bucket.has_full_gradients() || !bucket.sharding().optimizer) return;
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
  if (input_.tiers.updates_in_backward && !input_.tiers.rolls_back) return;
  ForEachBucket([&](SimulatedBucket& bucket) {
    bucket.BeginUpdate();
    Note("the update", saved_);
    if (input_.updates_by_sub_group) bucket.EndUpdate();
  });
  if (!input_.updates_by_sub_group) ForEachBucket([](SimulatedBucket& each) { each.EndUpdate(); });
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
