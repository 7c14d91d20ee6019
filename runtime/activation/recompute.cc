#include "runtime/activation/recompute.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/precision/autocast.h"

namespace ds::activation {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

bool NeedsGradient(const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }
bool IsFloating(const at::Tensor& tensor) {
  return tensor.defined() && at::isFloatingType(tensor.scalar_type());
}

// The state of the default generators of the CPU and of a device.
class GeneratorState {
 public:
  explicit GeneratorState(c10::Device device) : device_(device) {
    cpu_ = Read(at::detail::getDefaultCPUGenerator());
    if (device != c10::kCPU) other_ = Read(at::globalContext().defaultGenerator(device));
  }
  // The generators go on from here.
  void Write() const {
    Write(at::detail::getDefaultCPUGenerator(), cpu_);
    if (other_.defined()) Write(at::globalContext().defaultGenerator(device_), other_);
  }
  c10::Device device() const { return device_; }

 private:
  static at::Tensor Read(at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    return generator.get_state();
  }
  static void Write(at::Generator generator, const at::Tensor& state) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }

  c10::Device device_;
  at::Tensor cpu_, other_;
};

// What autocast makes of this thread's operations on the device now.
std::optional<at::ScalarType> ReadAutocast(c10::Device device) {
  if (!at::autocast::is_autocast_enabled(device.type())) return std::nullopt;
  return at::autocast::get_autocast_dtype(device.type());
}

// While it lives the generators draw what they drew from `state` on; then they are as they were.
class ReplayOfDraws {
 public:
  explicit ReplayOfDraws(const GeneratorState& state) : before_(state.device()) { state.Write(); }
  ~ReplayOfDraws() { before_.Write(); }
  ReplayOfDraws(const ReplayOfDraws&) = delete;
  ReplayOfDraws& operator=(const ReplayOfDraws&) = delete;

 private:
  const GeneratorState before_;
};

class RecomputeNode : public torch::autograd::Node {
 public:
  RecomputeNode(ForwardPart part, const Tensors& inputs, GeneratorState generators)
      : part_(std::move(part)),
        generators_(std::move(generators)),
        autocast_(ReadAutocast(generators_.device())) {
    for (const at::Tensor& input : inputs) {
      saved_.emplace_back(input, /*is_output=*/false);
      needs_gradient_.push_back(NeedsGradient(input));
      if (needs_gradient_.back()) add_next_edge(torch::autograd::impl::gradient_edge(input));
    }
  }

  variable_list apply(variable_list&& gradients) override {
    TORCH_CHECK(
        part_ != nullptr,
        "a backward pass went a second time through a part of the model that is recomputed, "
        "without retain_graph in the first");
    Tensors inputs = MakeLeaves();
    Tensors outputs;
    {
      const c10::AutoGradMode recording(true);
      const precision::AutocastScope autocast(autocast_, generators_.device());
      const ReplayOfDraws replay(generators_);
      outputs = part_(inputs);
    }
    RunBackward(outputs, gradients);
    variable_list of_inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (needs_gradient_[i]) of_inputs.push_back(inputs[i].grad());
    }
    return of_inputs;
  }

  // Comes behind apply, unless the graph is to be kept.
  void release_variables() override {
    saved_.clear();
    part_ = nullptr;
  }

 private:
  // The inputs as leaves, which keep their gradients.
  Tensors MakeLeaves() const {
    Tensors inputs;
    for (std::size_t i = 0; i < saved_.size(); ++i) {
      at::Tensor input = saved_[i].unpack();
      if (input.defined()) input = input.detach();
      if (needs_gradient_[i]) input.set_requires_grad(true);
      inputs.push_back(std::move(input));
    }
    return inputs;
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

  ForwardPart part_;
  GeneratorState generators_;
  std::optional<at::ScalarType> autocast_;
  std::vector<SavedVariable> saved_;
  std::vector<bool> needs_gradient_;
};

c10::Device FindDevice(const Tensors& tensors) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [](const at::Tensor& tensor) { return tensor.defined(); });
  return found == tensors.end() ? c10::Device(c10::kCPU) : found->device();
}

// Makes `node` the origin of the results. One that is an input, or shares its memory, becomes a
// tensor of its own, for its history is another.
void SetOrigin(const std::shared_ptr<RecomputeNode>& node, Tensors* outputs) {
  for (at::Tensor& output : *outputs) {
    if (!IsFloating(output)) {
      node->add_input_metadata(torch::autograd::Node::undefined_input());
      continue;
    }
    output = output.detach();
    torch::autograd::create_gradient_edge(output, node);
  }
}

}  // namespace

Tensors Recompute(ForwardPart part, Tensors inputs, bool trains) {
  const bool needed = trains || std::any_of(inputs.begin(), inputs.end(), NeedsGradient);
  if (!c10::GradMode::is_enabled() || !needed) return part(std::move(inputs));
  GeneratorState generators(FindDevice(inputs));
  Tensors outputs;
  {
    const c10::NoGradGuard no_grad;
    outputs = part(inputs);
  }
  const auto node = std::make_shared<RecomputeNode>(std::move(part), inputs, std::move(generators));
  SetOrigin(node, &outputs);
  return outputs;
}

}  // namespace ds::activation
