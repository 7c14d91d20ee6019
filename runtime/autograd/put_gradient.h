#pragma once

// PutGradient writes a parameter's gradient directly to its accumulation buffer.
//
// The backward of an autograd function returns gradients as new tensors, which are then added to
// the existing gradient. A matrix product can add to it directly (beta = 1), and an embedding row
// by row. The owner of the buffer sets a GradientSink as the parameter's post-accumulate hook. A
// backward that can write to any destination calls PutGradient.
//
// Threads: the thread of the backward pass.

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>

#include <functional>

namespace ds::gradients {

// Sets place = beta * place + the gradient. `place` is contiguous and has the parameter's shape;
// beta is 0 or 1, and with 0 the previous values are undefined. It may be stored and called after
// the backward pass, so it must own the tensors that it reads, without their autograd history.
using WriteGradient = std::function<void(at::Tensor& place, float beta)>;

// The dtype of the destinations that a WriteGradient supports.
enum class PlaceDtype {
  kOfParameter,
  kAnyFloat,  // gradients may accumulate in fp32 for any parameter dtype
};

// The hook receives gradients that were not put. After a put it receives none (.grad is undefined).
class GradientSink : public torch::autograd::PostAccumulateGradHook {
 public:
  // Calls `write` for the destination of the parameter's gradient, now or later. Returns false if
  // it cannot.
  virtual bool Put(const at::Tensor& parameter, const WriteGradient& write, PlaceDtype dtype) = 0;
};

// Lets `write` write a part of the gradient of `parameter` to its sink. Returns false, without
// calling `write`, if the caller must return the gradient to autograd: the tensor has no sink,
// another hook needs the gradient, or this is not a plain backward pass. Requires a tensor that
// needs a gradient, in the backward of an operation on it.
bool PutGradient(const at::Tensor& parameter, const WriteGradient& write,
                 PlaceDtype dtype = PlaceDtype::kOfParameter);

// Calls PutGradient, and makes the gradient with `write` if that fails. Returns the gradient for
// autograd: a new tensor if it could not be put, else an undefined one.
at::Tensor PutOrMakeGradient(const at::Tensor& parameter, const WriteGradient& write);

}  // namespace ds::gradients
