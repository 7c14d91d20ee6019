#include "runtime/autograd/put_gradient.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
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

// Returns whether others need the gradient in `.grad`, or on its way there.
bool OthersNeedGradient(const at::Tensor& parameter) {
  namespace impl = torch::autograd::impl;
  if (parameter.grad().defined() || !impl::hooks(parameter).empty()) return true;
  if (impl::post_acc_grad_hooks(parameter) != nullptr) return true;
  const auto node = impl::try_get_grad_accumulator(parameter);
  return !node->pre_hooks().empty() || node->post_hooks().size() > 1;  // one is the sink
}

}  // namespace

torch::autograd::variable_list GradientSink::operator()(
    const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) {
  // Undefined after a put, and if a hook of the user has taken it.
  if (const at::Tensor gradient = std::exchange(parameter_.mutable_grad(), {});
      gradient.defined()) {
    Take(gradient);
  }
  return outputs;
}

AttachedSink::AttachedSink(std::unique_ptr<GradientSink> sink)
    : node_(torch::autograd::impl::grad_accumulator(sink->parameter())),
      key_(node_->add_post_hook(std::move(sink))) {}

AttachedSink::~AttachedSink() {
  if (node_ != nullptr) node_->del_post_hook(key_);
}

GradientSink* FindSink(const at::Tensor& parameter) {
  // A parameter that could never be trained has no autograd metadata.
  if (torch::autograd::impl::get_autograd_meta(parameter) == nullptr) return nullptr;
  const auto node = torch::autograd::impl::try_get_grad_accumulator(parameter);
  if (node == nullptr) return nullptr;
  for (const auto& hook : node->post_hooks()) {
    if (auto* const sink = dynamic_cast<GradientSink*>(hook.get())) return sink;
  }
  return nullptr;
}

bool PutGradient(const at::Tensor& parameter, const WriteGradient& write, DestinationDtype dtype) {
  if (!parameter.is_leaf() || !parameter.requires_grad() || !IsPlainBackwardPass()) return false;
  GradientSink* const sink = FindSink(parameter);
  return sink != nullptr && !OthersNeedGradient(parameter) && sink->Put(write, dtype);
}

at::Tensor PutOrMakeGradient(const at::Tensor& parameter, const WriteGradient& write) {
  if (PutGradient(parameter, write)) return {};
  at::Tensor gradient = at::empty(parameter.sizes(), parameter.options());
  write(gradient, /*beta=*/0.0F);
  return gradient;
}

}  // namespace ds::gradients
