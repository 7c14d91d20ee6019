#include "runtime/autograd/put_gradient.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

namespace ds::gradients {
namespace {

// Returns true in a backward pass that is not recorded and computes the gradients of all leaves. A
// pass for some inputs only, as in autograd::grad, lists the nodes to execute.
bool IsPlainBackwardPass() {
  const auto* some_nodes = torch::autograd::get_current_graph_task_exec_info();
  return some_nodes != nullptr && some_nodes->empty() && !c10::GradMode::is_enabled();
}

bool IsLookedAtOnTheWay(const at::Tensor& parameter) {
  if (parameter.grad().defined() || !torch::autograd::impl::hooks(parameter).empty()) return true;
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(parameter);
  return accumulator != nullptr &&
         !(accumulator->pre_hooks().empty() && accumulator->post_hooks().empty());
}

}  // namespace

bool PutGradient(const at::Tensor& parameter, const WriteGradient& write, PlaceDtype dtype) {
  if (!parameter.is_leaf() || !parameter.requires_grad() || !IsPlainBackwardPass()) return false;
  auto* const sink =
      dynamic_cast<GradientSink*>(torch::autograd::impl::post_acc_grad_hooks(parameter).get());
  return sink != nullptr && !IsLookedAtOnTheWay(parameter) && sink->Put(parameter, write, dtype);
}

at::Tensor PutOrMakeGradient(const at::Tensor& parameter, const WriteGradient& write) {
  if (PutGradient(parameter, write)) return {};
  at::Tensor gradient = at::empty(parameter.sizes(), parameter.options());
  write(gradient, /*beta=*/0.0F);
  return gradient;
}

}  // namespace ds::gradients
