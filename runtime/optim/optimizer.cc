#include "runtime/optim/optimizer.h"

#include <memory>
#include <variant>

#include "runtime/optim/elementwise.h"

namespace ds::optim {

namespace {

const UpdateDecision* ViewDecision(const at::Tensor& decision) {
  if (!decision.defined()) return nullptr;
  return static_cast<const UpdateDecision*>(decision.const_data_ptr());
}

}  // namespace

device::LedgerEntry Book(const RankSlices& all, device::MemoryUse use, std::int64_t bytes) {
  const bool host = all.slices.empty() || all.slices[0].parameter.is_cpu();
  return {all.ledger, use, device::TierOf(host), bytes};
}

bool Optimizer::NeedsLocalGradients(std::int64_t step) const {
  static_cast<void>(step);
  return false;
}

Reach Optimizer::reach(const ParameterGroup& group) const {
  static_cast<void>(group);
  return Reach::kModel;
}

nlohmann::json Optimizer::State() const { return nullptr; }

Status Optimizer::LoadState(const nlohmann::json& state, std::int64_t parameter_count) {
  static_cast<void>(state);
  static_cast<void>(parameter_count);
  return OkStatus();
}

void Optimizer::Begin(const Update& update, const RankSlices& all) {
  static_cast<void>(update);
  static_cast<void>(all);
}

SliceRates Optimizer::MakeRates(const Update& update, const OptimizerSlice& slice) const {
  const ParameterGroup& group = slice.group;
  ScheduledValues values{.lr = update.lr, .momentum = update.beta1};
  if (group.schedule) values = update.groups.at(*group.schedule);
  return {.lr = values.lr * group.lr_factor,
          .beta1 = values.momentum.value_or(configured_.beta1),
          .weight_decay = configured_.weight_decay * group.weight_decay_factor,
          .gradient_scale = update.gradient_scale,
          .step = update.step,
          .decision = ViewDecision(update.decision)};
}

// Not in the unnamed namespace, because it declares a function of ds::optim.
template <typename Config>
static std::unique_ptr<Optimizer> MakeFor(const Config& config, double weight_decay) {
  if constexpr (requires(SliceRates rates) { MakeOp(config, rates); }) {
    return std::make_unique<Elementwise<Config>>(config, weight_decay);
  } else {
    // Optimizers that are more than an op have their own source, which defines this function for
    // their config. An alternative without an optimizer does not link.
    std::unique_ptr<Optimizer> MakeOptimizer(const Config& config, double weight_decay);
    return MakeOptimizer(config, weight_decay);
  }
}

std::unique_ptr<Optimizer> MakeOptimizer(const config::OptimizerConfig& config) {
  return std::visit([&](const auto& each) { return MakeFor(each, config.weight_decay); },
                    config.algorithm);
}

}  // namespace ds::optim
