#include "runtime/zero/unit.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace ds::zero {
namespace {

using HookPtr = std::unique_ptr<torch::autograd::PostAccumulateGradHook>;

// Takes a parameter's gradient away as soon as the autograd engine has put it there, so that it
// never lies beside the flat buffer for longer than one operation. A user's own hook runs first.
class TakeGradient : public torch::autograd::PostAccumulateGradHook {
 public:
  TakeGradient(FlatGradients& gradients, int parameter, HookPtr own)
      : own_(std::move(own)), gradients_(gradients), parameter_(parameter) {}

  HookPtr GiveBack() { return std::move(own_); }
  bool IsFor(const FlatGradients& gradients) const { return &gradients_ == &gradients; }

  void operator()(const torch::autograd::Variable& variable) override {
    if (own_) (*own_)(variable);
    if (!variable.grad().defined()) return;  // the user's hook has taken it
    gradients_.Add(parameter_, variable.grad());
    variable.mutable_grad().reset();
  }

 private:
  HookPtr own_;  // the user's; may be null
  FlatGradients& gradients_;
  int parameter_;
};

// Null where the parameter has no hook, or one of the user's.
TakeGradient* FindTakeGradient(const at::Tensor& parameter) {
  return dynamic_cast<TakeGradient*>(torch::autograd::impl::post_acc_grad_hooks(parameter).get());
}

bool HaveSameAxes(const checkpoint::Placement& a, const checkpoint::Placement& b) {
  return a.copy_axes == b.copy_axes && a.gradient_axes == b.gradient_axes && a.expert == b.expert;
}

// In order of first appearance, what is frozen last.
std::vector<std::vector<NamedParameter>> GroupByTraining(
    const std::vector<NamedParameter>& parameters) {
  std::vector<std::vector<NamedParameter>> groups;
  std::vector<NamedParameter> frozen;
  for (const NamedParameter& parameter : parameters) {
    if (!parameter.tensor.requires_grad()) {
      frozen.push_back(parameter);
      continue;
    }
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& members) {
      return members[0].group == parameter.group && members[0].reduction == parameter.reduction &&
             members[0].sparse_rows == parameter.sparse_rows &&
             HaveSameAxes(members[0].placement, parameter.placement);
    });
    if (group == groups.end()) {
      groups.push_back({parameter});
    } else {
      group->push_back(parameter);
    }
  }
  if (!frozen.empty()) groups.push_back(std::move(frozen));
  return groups;
}

GradientTravel MakeGradientTravel(const Context& context, const FlatParameters& parameters) {
  const NamedParameter& first = parameters.parameter(0);
  GradientTravel travel{.dtype = first.reduction.value_or(context.dtypes.reduction),
                        .tag = first.name};
  if (!first.sparse_rows) return travel;
  for (int i = 0; i < parameters.layout().size(); ++i) {
    travel.row_widths.push_back(parameters.parameter(i).tensor.size(-1));
  }
  return travel;
}

}  // namespace

Group::Group(const Context& context, BufferPool& pool, std::vector<NamedParameter> members)
    : parameters(context, pool, std::move(members)) {
  if (parameters.parameter(0).tensor.requires_grad()) {
    gradients = std::make_unique<FlatGradients>(context, pool, parameters.layout(),
                                                MakeGradientTravel(context, parameters));
  }
}

Unit::Unit(const Context& context, BufferPool& pool, const ParameterUnit& described)
    : name_(described.name), also_reads_(described.also_reads) {
  for (std::vector<NamedParameter>& members : GroupByTraining(described.parameters)) {
    groups_.push_back(std::make_unique<Group>(context, pool, std::move(members)));
    if (groups_.back()->trainable()) AttachHooks(*groups_.back());
  }
}

bool Unit::HasHookOn(const at::Tensor& parameter) { return FindTakeGradient(parameter) != nullptr; }

void Unit::AttachHooks(Group& group) {
  for (int i = 0; i < group.parameters.layout().size(); ++i) {
    const at::Tensor& parameter = group.parameters.parameter(i).tensor;
    HookPtr own = std::move(torch::autograd::impl::post_acc_grad_hooks(parameter));
    torch::autograd::impl::set_post_acc_grad_hooks(
        parameter, std::make_unique<TakeGradient>(*group.gradients, i, std::move(own)));
  }
}

Unit::~Unit() {
  for (const auto& group : groups_) {
    if (!group->trainable()) continue;
    for (int i = 0; i < group->parameters.layout().size(); ++i) {
      const at::Tensor& parameter = group->parameters.parameter(i).tensor;
      TakeGradient* const hook = FindTakeGradient(parameter);
      if (hook != nullptr && hook->IsFor(*group->gradients)) {
        torch::autograd::impl::set_post_acc_grad_hooks(parameter, hook->GiveBack());
      }
    }
  }
}

void Unit::Gather() {
  for (const auto& group : groups_) group->parameters.Gather();
}

void Unit::Release() {
  for (const auto& group : groups_) group->parameters.Release();
}

void Unit::Fetch() {
  for (const auto& group : groups_) group->parameters.Fetch();
}

void Unit::Stow() {
  for (const auto& group : groups_) group->parameters.Stow();
}

void Unit::EndMicroBatch(bool hold) {
  for (const auto& group : groups_) {
    if (group->trainable()) group->gradients->EndMicroBatch(hold);
  }
}

}  // namespace ds::zero
