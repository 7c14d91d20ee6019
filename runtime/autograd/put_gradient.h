#pragma once

// Gradient sinks take the gradients of parameters as the backward pass computes them.
//
// The backward of an autograd function returns gradients as new tensors, which are then added to
// the existing gradient. A matrix product can add to it directly (beta = 1), and an embedding row
// by row. The owner of the accumulation buffer attaches a GradientSink to the parameter. A backward
// that can write to any destination calls PutGradient; all other gradients reach the sink after
// autograd has accumulated them.
//
// A sink is a post hook of the parameter's AccumulateGrad node, as in DistributedDataParallel. It
// therefore stays in place whatever hooks users register on the parameter, before or after, and
// runs after them.
//
// Threads: the thread of the backward pass.

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace ds::gradients {

// Sets target = beta * target + the gradient. `target` is contiguous and has the parameter's shape;
// beta is 0 or 1, and with 0 the previous values are undefined. It may be stored and called after
// the backward pass, so it must own the tensors that it reads, without their autograd history.
using WriteGradient = std::function<void(at::Tensor& target, float beta)>;

// The dtype of the destinations that a WriteGradient supports.
enum class DestinationDtype {
  kOfParameter,
  kAnyFloat,  // gradients may accumulate in fp32 for any parameter dtype
};

class GradientSink : public torch::autograd::FunctionPostHook {
 public:
  explicit GradientSink(at::Tensor parameter) : parameter_(std::move(parameter)) {}

  // Receives a gradient that was not put. `.grad` of the parameter is undefined from here on.
  virtual void Take(const at::Tensor& gradient) = 0;
  // Calls `write` for the destination of the parameter's gradient, now or later. Returns false if
  // it cannot.
  virtual bool Put(const WriteGradient& write, DestinationDtype dtype) = 0;

  const at::Tensor& parameter() const { return parameter_; }
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) final;

 private:
  const at::Tensor parameter_;
};

// Attaches a sink to its parameter, a leaf that requires a gradient, while it lives.
class AttachedSink {
 public:
  explicit AttachedSink(std::unique_ptr<GradientSink> sink);
  ~AttachedSink();
  AttachedSink(AttachedSink&&) = default;
  AttachedSink& operator=(AttachedSink&&) = delete;
  AttachedSink(const AttachedSink&) = delete;
  AttachedSink& operator=(const AttachedSink&) = delete;

 private:
  // The parameter's only reference to its node is a weak one.
  std::shared_ptr<torch::autograd::Node> node_;
  std::uintptr_t key_ = 0;  // of the hook in the node
};

// Returns the sink that is attached to the tensor, or null.
GradientSink* FindSink(const at::Tensor& parameter);

// Lets `write` write a part of the gradient of `parameter` to its sink. Returns false, without
// calling `write`, if the caller must return the gradient to autograd: the tensor has no sink,
// another hook needs the gradient, or this is not a plain backward pass. Requires a tensor that
// needs a gradient, in the backward of an operation on it.
bool PutGradient(const at::Tensor& parameter, const WriteGradient& write,
                 DestinationDtype dtype = DestinationDtype::kOfParameter);

// Calls PutGradient, and makes the gradient with `write` if that fails. Returns the gradient for
// autograd: a new tensor if it could not be put, else an undefined one.
at::Tensor PutOrMakeGradient(const at::Tensor& parameter, const WriteGradient& write);

}  // namespace ds::gradients
