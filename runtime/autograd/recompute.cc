#include "runtime/autograd/recompute.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "runtime/autograd/run_state.h"
#include "runtime/device/rank_device.h"
#include "runtime/device/transfers.h"

namespace ds::activation {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

bool NeedsGradient(const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }
bool CanHaveGradient(const at::Tensor& tensor) {
  return tensor.defined() &&
         (at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type()));
}

// The saved form of a node's input.
class SavedInput {
 public:
  SavedInput(std::size_t number, const at::Tensor& input, const RecomputeOptions& options)
      : needs_gradient_(NeedsGradient(input)),
        device_(input.defined() ? input.device() : c10::kCPU),
        is_offloaded_(options.keep_on_host && device_ != c10::kCPU) {
    const c10::NoGradGuard no_grad;
    at::Tensor saved = input;
    if (options.split_among != nullptr && CanBeSplit(input, options.split_among->size())) {
      ranks_ = options.split_among;
      sizes_ = input.sizes().vec();
      const std::int64_t count = input.numel() / ranks_->size();
      const at::Tensor part = input.reshape({-1}).narrow(0, ranks_->rank() * count, count);
      saved = options.buffer != nullptr ? options.buffer->Keep(number, part) : part.clone();
    }
    saved_ = SavedVariable(is_offloaded_ ? device::TakeToHost(saved) : saved, /*is_output=*/false);
  }

  bool needs_gradient() const { return needs_gradient_; }
  // Returns a leaf, which accumulates its gradient.
  at::Tensor MakeLeaf() const {
    at::Tensor input = saved_.unpack();
    if (!input.defined()) return input;
    input = is_offloaded_ ? input.to(device_, /*non_blocking=*/true) : input.detach();
    if (ranks_ != nullptr) input = Gather(input);
    return needs_gradient_ ? input.set_requires_grad(true) : input;
  }

 private:
  static bool CanBeSplit(const at::Tensor& input, int parts) {
    return parts > 1 && CanHaveGradient(input) && input.numel() > 0 && input.numel() % parts == 0;
  }
  at::Tensor Gather(const at::Tensor& part) const {
    const at::Tensor full = at::empty(sizes_, part.options());
    ranks_->AllGather(full.view({-1}), part, "recomputed inputs");
    return full;
  }

  bool needs_gradient_;
  c10::Device device_;
  bool is_offloaded_;
  comm::Communicator* ranks_ = nullptr;  // ranks with the other parts; null: unsplit
  std::vector<std::int64_t> sizes_;      // of the unsplit input
  SavedVariable saved_;
};

// Adds its lifetime to a sum, if there is one; includes the device's work with `synchronize`.
class TimedRun {
 public:
  TimedRun(const RecomputeOptions& options, std::chrono::nanoseconds RunTimes::*sum,
           c10::Device device)
      : options_(options), sum_(sum), device_(device) {
    if (options.synchronize) device::Synchronize(device);
    begin_ = options.clock->Now();
  }
  ~TimedRun() {
    if (options_.times != nullptr) options_.times->*sum_ += options_.clock->Now() - begin_;
  }
  // Call after the run; it may throw errors of the device.
  void End() const {
    if (options_.synchronize) device::Synchronize(device_);
  }
  TimedRun(const TimedRun&) = delete;
  TimedRun& operator=(const TimedRun&) = delete;

 private:
  const RecomputeOptions& options_;
  std::chrono::nanoseconds RunTimes::*sum_;
  c10::Device device_;
  std::chrono::nanoseconds begin_;
};

class RecomputeNode : public torch::autograd::Node {
 public:
  RecomputeNode(RecomputedForward part, const Tensors& inputs, c10::Device device,
                const RecomputeOptions& options)
      : part_(std::move(part)), state_(device), options_(options) {
    for (const at::Tensor& input : inputs) {
      saved_inputs_.emplace_back(saved_inputs_.size(), input, options);
      if (NeedsGradient(input)) add_next_edge(torch::autograd::impl::gradient_edge(input));
    }
  }

  variable_list apply(variable_list&& gradients) override {
    TORCH_CHECK(
        part_ != nullptr,
        "a backward pass went a second time through a part of the model that is recomputed, "
        "without retain_graph in the first");
    Tensors inputs;
    for (const SavedInput& saved : saved_inputs_) inputs.push_back(saved.MakeLeaf());
    RunBackward(RunAgain(inputs), gradients);
    variable_list of_inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (saved_inputs_[i].needs_gradient()) of_inputs.push_back(inputs[i].grad());
    }
    return of_inputs;
  }

  // Called after apply, unless the graph is retained.
  void release_variables() override {
    saved_inputs_.clear();
    part_ = nullptr;
  }

 private:
  Tensors RunAgain(const Tensors& inputs) const {
    return state_.RunAgain([&] {
      const TimedRun run(options_, &RunTimes::again, state_.device());
      Tensors outputs = part_(inputs);
      run.End();
      return outputs;
    });
  }

  static void RunBackward(const Tensors& outputs, const variable_list& gradients) {
    TORCH_CHECK(outputs.size() == gradients.size(), "a part of the model gave ", gradients.size(),
                " tensors and, computed again, ", outputs.size());
    variable_list roots, of_roots;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!NeedsGradient(outputs[i]) || !gradients[i].defined()) continue;
      roots.push_back(outputs[i]);
      of_roots.push_back(gradients[i]);
    }
    if (!roots.empty()) torch::autograd::backward(roots, of_roots);
  }

  RecomputedForward part_;
  RunState state_;
  RecomputeOptions options_;
  std::vector<SavedInput> saved_inputs_;
};

c10::Device FindDevice(const Tensors& tensors) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [](const at::Tensor& tensor) { return tensor.defined(); });
  return found == tensors.end() ? c10::Device(c10::kCPU) : found->device();
}

// Makes `node` the gradient function of the results. A result that is an input, or shares its
// memory, becomes a new tensor, because its history is different. An input without gradient that
// passes through is unchanged.
void SetOrigin(const std::shared_ptr<RecomputeNode>& node, const Tensors& inputs,
               Tensors* outputs) {
  for (at::Tensor& output : *outputs) {
    const bool passes_through = std::any_of(
        inputs.begin(), inputs.end(),
        [&](const at::Tensor& input) { return input.is_same(output) && !NeedsGradient(input); });
    if (!CanHaveGradient(output) || passes_through) {
      node->add_input_metadata(torch::autograd::Node::undefined_input());
      continue;
    }
    output = output.detach();
    torch::autograd::create_gradient_edge(output, node);
  }
}

}  // namespace

Tensors Recompute(RecomputedForward part, Tensors inputs, const RecomputeOptions& options) {
  const bool needed = options.trains || std::any_of(inputs.begin(), inputs.end(), NeedsGradient);
  if (!c10::GradMode::is_enabled() || !needed) return part(std::move(inputs));
  const c10::Device device = FindDevice(inputs);
  // Make the node before the first run, to detect in-place changes of an input in that run.
  const auto node = std::make_shared<RecomputeNode>(part, inputs, device, options);
  Tensors outputs;
  {
    const TimedRun run(options, &RunTimes::first, device);
    const c10::NoGradGuard no_grad;
    outputs = part(inputs);
    run.End();
  }
  SetOrigin(node, inputs, &outputs);
  return outputs;
}

}  // namespace ds::activation
