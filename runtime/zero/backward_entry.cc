#include "runtime/zero/backward_entry.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace ds::zero {
namespace {

class BackwardEntry : public torch::autograd::Node {
 public:
  explicit BackwardEntry(std::function<void()> on_reached) : on_reached_(std::move(on_reached)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    on_reached_();
    return std::move(gradients);
  }

 private:
  std::function<void()> on_reached_;
};

bool HasGradient(const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }

}  // namespace

bool CanMarkBackwardEntry(const std::vector<at::Tensor>& tensors) {
  return c10::GradMode::is_enabled() && std::any_of(tensors.begin(), tensors.end(), HasGradient);
}

std::vector<at::Tensor> MarkBackwardEntry(std::vector<at::Tensor> tensors,
                                          const std::function<void()>& on_reached) {
  if (!c10::GradMode::is_enabled()) return tensors;
  std::shared_ptr<BackwardEntry> node;
  for (at::Tensor& tensor : tensors) {
    if (!HasGradient(tensor)) continue;
    if (!node) node = std::make_shared<BackwardEntry>(on_reached);
    node->add_next_edge(torch::autograd::impl::gradient_edge(tensor));
    tensor = tensor.detach();
    torch::autograd::create_gradient_edge(tensor, node);
  }
  return tensors;
}

}  // namespace ds::zero
