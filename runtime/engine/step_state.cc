#include "runtime/engine/step_state.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine/step_result.h"

namespace ds::engine {

void StepInProgress::AddExpertRoutes(const at::Tensor& routes) {
  // Integers: fp32 could not hold the sums of long steps.
  const at::Tensor counts = routes.detach().to(at::kLong);
  expert_routes = expert_routes.defined() ? expert_routes + counts : counts;
}

double StepInProgress::FindWeight(const at::Tensor& loss) const {
  for (const ReturnedLoss& known : returned) {
    if (known.loss._unsafe_get_target() == loss.unsafeGetTensorImpl()) return known.weight;
  }
  return returned.empty() ? 1.0 : returned.back().weight;
}

double StepInProgress::AddUpWeights() const {
  if (losses.empty()) return 0.0;
  double sum = 0.0;
  for (const MicroLoss& loss : losses) sum += loss.weight;
  return sum / static_cast<double>(losses.size());
}

std::vector<at::Tensor> StepInProgress::ListLosses() const {
  std::vector<at::Tensor> values;
  for (const MicroLoss& loss : losses) values.push_back(loss.value.reshape({}).to(at::kDouble));
  return values;
}

double StepInProgress::AddUpLosses(std::span<const double> values) const {
  if (losses.empty()) return 0.0;
  double to_average = 0.0;
  double to_add = 0.0;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    (losses[i].scale_wrt_gas ? to_average : to_add) += losses[i].weight * values[i];
  }
  return to_average / static_cast<double>(losses.size()) + to_add;
}

std::optional<std::int64_t> StepInProgress::FindNonFiniteLoss() const {
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (!std::isfinite(losses[i].value.item<double>())) return static_cast<std::int64_t>(i);
  }
  return std::nullopt;
}

nlohmann::json StepCounts::State() const {
  nlohmann::json state = {{"finished_steps", finished},
                          {"applied_steps", applied},
                          {"micro_steps", micro_batches},
                          {"global_samples", samples},
                          {"most_labels", most_labels}};
  if (optimizer_began != 0) state["optimizer_began"] = optimizer_began;
  if (schedule_began != 0) state["schedule_began"] = schedule_began;
  return state;
}

namespace {

// Returns a number that only some states have; 0 without it.
std::int64_t FindOptional(const nlohmann::json& state, const char* key) {
  const auto found = state.find(key);
  return found != state.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

}  // namespace

Status StepCounts::LoadState(const nlohmann::json& state) {
  for (const auto& [key, target] :
       {std::pair{"finished_steps", &finished}, std::pair{"applied_steps", &applied},
        std::pair{"micro_steps", &micro_batches}, std::pair{"global_samples", &samples}}) {
    const auto found = state.find(key);
    if (found == state.end() || !found->is_number_unsigned()) {
      return DataLossError("the engine's state has no count \"" + std::string(key) + "\"");
    }
    *target = found->get<std::int64_t>();
  }
  most_labels = FindOptional(state, "most_labels");
  optimizer_began = FindOptional(state, "optimizer_began");
  schedule_began = FindOptional(state, "schedule_began");
  if (optimizer_updates() < 0 || scheduled_updates() < 0) {
    return DataLossError("the engine's state says that its optimizer or its schedule began after " +
                         std::to_string(applied) + " updates, which are all");
  }
  return OkStatus();
}

bool StepState::IsUpdateDue(const Accumulation& accumulation) const {
  if (boundary) return *boundary;
  return !accumulation.managed || current.CountStarted() >= accumulation.micro_batches;
}

bool StepState::IsInLastMicroBatch(const Accumulation& accumulation) const {
  if (boundary || !accumulation.managed) return IsUpdateDue(accumulation);
  const bool goes_on = current.backward_is_latest || current.is_open;
  const std::int64_t number = current.CountStarted() + (goes_on ? 0 : 1);
  return number >= accumulation.micro_batches;
}

Status StepState::CheckBetweenSteps(const char* what) const {
  if (current.CountStarted() == 0) return OkStatus();
  return FailedPreconditionError(std::string(what) + " between steps only; this one has seen " +
                                 std::to_string(current.CountStarted()) + " micro-batches");
}

void StepState::Finish(const StepResult& result) {
  counts.finished = result.step;
  counts.micro_batches += current.micro_batches;
  counts.samples += result.samples;
  latest_norm = result.grad_norm;
  current = {};
}

void StepState::Forget() {
  current = {};
  latest_was_applied = false;
  latest_norm.reset();
}

}  // namespace ds::engine
