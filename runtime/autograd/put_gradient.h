#pragma once

// A parameter's gradient, written by who computes it to where it is collected.
//
// The backward of an autograd function returns gradients as tensors of their own, which are then
// added to what there is. A matrix product can add to what there is itself (beta = 1), and an
// embedding row by row. Whoever collects gradients sets a GradientSink as the parameter's
// post-accumulate hook; a backward that can write anywhere calls PutGradient.
//
// Threads: that of the backward pass.

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>

#include <functional>

namespace ds::gradients {

// Makes place = beta * place + the gradient. `place` is contiguous and has the parameter's shape;
// beta is 0 or 1, and with 0 the values before are undefined. It may be kept and called later,
// behind the backward pass, so it owns what it reads, and no history of that.
using WriteGradient = std::function<void(at::Tensor& place, float beta)>;

// The dtype of places that a WriteGradient writes to.
enum class PlaceDtype {
  kOfParameter,
  kAnyFloat,  // gradients may be added up in fp32, whatever the parameter's is
};

// The hook takes what comes in the ordinary way, which is nothing (no .grad) after parts that were
// put.
class GradientSink : public torch::autograd::PostAccumulateGradHook {
 public:
  // Calls `write` for the place of the parameter's gradient, now or later, or returns false where
  // it cannot.
  virtual bool Put(const at::Tensor& parameter, const WriteGradient& write, PlaceDtype dtype) = 0;
};

// Has `write` put a part of the gradient of `parameter` where it is collected. False, without a
// call of `write`: the gradient goes the ordinary way, the caller returns it to autograd. So it is
// with tensors that have no sink, or a hook beside it that wants to see the gradient, and outside
// of a plain backward pass. Requires a tensor that needs a gradient, in the backward of its use.
bool PutGradient(const at::Tensor& parameter, const WriteGradient& write,
                 PlaceDtype dtype = PlaceDtype::kOfParameter);

// The same for a gradient that `write` can make as well as add: what is left to return to autograd,
// a tensor of its own where it could not be put, else an undefined one.
at::Tensor PutOrMakeGradient(const at::Tensor& parameter, const WriteGradient& write);

}  // namespace ds::gradients
