#include <algorithm>
#include <utility>

#include "runtime/plan/zero/step_simulation.h"

namespace ds::zero {
namespace {

std::string NameOf(const char* pass, int block) {
  return std::string("the ") + pass + " pass of block " + std::to_string(block);
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
  kept_ = returning_ = 0;
  traffic_.clear();
  keeps_parameters_ = input_.windows.parameters.whole_step;
  input_.passes.empty() ? RunMicroBatches() : RunPasses();
  if (std::exchange(keeps_parameters_, false)) Execute(MakePlan({{Place::Kind::kRest}}, {}), 0);
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
  return input_.windows.gradients.whole_step && !is_last;
}

std::vector<Place> StepSimulation::ListBackward(const Pass& pass) const {
  const UnitRange units = UnitsOf(pass);
  std::vector<Place> places;
  for (int unit = units.end - 1; unit >= std::max(units.first, first_trained_); --unit) {
    places.push_back({Place::Kind::kBackward, pass.micro_batch, unit});
  }
  return places;
}

// Counts the bytes sent to and received from neighbouring stages. No gradient goes to or past units
// before the first trained one. A later chunk of this stage always has trained units before it.
void StepSimulation::BeginPass(const Pass& pass) {
  micro_batch_ = pass.micro_batch;
  StepTraffic* const here = traffic();
  if (input_.passes.empty() || pass.kind == Pass::Kind::kWeightGradient) return;
  const UnitRange units = UnitsOf(pass);
  const bool forward = pass.kind == Pass::Kind::kForward;
  const bool behind = forward || first_trained_ < units.end;
  const bool before = forward || input_.input_needs_gradient || units.first > 0;
  const int parts = forward ? input_.activation_parts : input_.gradient_parts;
  if (pass.sends && behind) here->between_stages += input_.sent_bytes / parts;
  if (pass.returns && before) here->between_stages += input_.returned_bytes / parts;
}

void StepSimulation::Forward(const Pass& pass) {
  BeginPass(pass);
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

void StepSimulation::Backward(const Pass& pass, bool is_last) {
  BeginPass(pass);
  std::vector<Place> places = ListBackward(pass);
  places.push_back({Place::Kind::kEndOfMicroBatch, pass.micro_batch});
  const bool later = pass.kind == Pass::Kind::kInputGradient;
  const ResidencyPlan plan = MakePlan(
      places, {.units = UnitsOf(pass), .is_last = is_last, .later = later, .held = IsHeld(pass)});
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
    // The gradients sent back to other ranks' experts exist before this rank's expert gradients.
    if (!later) AcquireGradients(unit, /*of_experts=*/true);
    Note(NameOf("backward", BlockOf(unit)), kept_ + made.kept);
    if (i == 0) kept_ += sent;  // its gradient; the last block has its own already
    if (later) kept_ += made.delayed;
  }
  Execute(plan, static_cast<int>(places.size()) - 1);
  ForEachBucket([](SimulatedBucket& bucket) { bucket.EndUpdateBeside(); });
  updates_ = false;
  Execute(MakePlan({{Place::Kind::kRest}}, {}), 0);
  kept_ -= (pass.begins ? input_.batch_bytes : 0) + 2 * sent;
  if (pass.hands_back) kept_ += input_.handed_bytes;
  if (!pass.returns) return;
  kept_ += input_.returned_bytes - std::exchange(returning_, input_.returned_bytes);
}

void StepSimulation::BringWeightGradients(const Pass& pass) {
  BeginPass(pass);
  const UnitRange units = UnitsOf(pass);
  std::vector<Place> places;
  for (int unit = units.end - 1; unit >= units.first; --unit) {
    places.push_back({Place::Kind::kWeightGradient, pass.micro_batch, unit});
  }
  places.push_back({Place::Kind::kEndOfMicroBatch, pass.micro_batch});
  const ResidencyPlan plan = MakePlan(places, {.units = units, .held = IsHeld(pass)});
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

}  // namespace ds::zero
