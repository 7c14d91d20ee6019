#pragma once

// The distance of fp32 results from what fp64 gives, for tests of loops that stand in for
// operators: the loop may be off by one unit in the last place more than the operators are.

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ds::models {

// The error in units in the last place of an fp32 number of the size of `scale`.
inline double FindUlps(const at::Tensor& ours, const at::Tensor& exact, const at::Tensor& scale) {
  const at::Tensor unit = scale.to(at::kDouble).abs() * std::ldexp(1.0, -23);
  return ((ours.to(at::kDouble) - exact).abs() / unit).max().item<double>();
}

// The value of a function and its gradients.
using Results = std::vector<at::Tensor>;

// Runs `function` on copies of `inputs`, and back from the upstream gradient.
template <typename Function>
Results RunBothVariants(const Function& function, std::vector<at::Tensor> inputs,
                        const at::Tensor& upstream) {
  for (at::Tensor& input : inputs) input = input.detach().clone().set_requires_grad(true);
  const at::Tensor y = function(inputs);
  y.backward(upstream);
  Results results = {y.detach()};
  for (const at::Tensor& input : inputs) results.push_back(input.grad());
  return results;
}

inline std::vector<at::Tensor> Widened(std::vector<at::Tensor> tensors) {
  for (at::Tensor& each : tensors) each = each.to(at::kDouble);
  return tensors;
}

// `scales` has for each result the size of what is added up to it.
inline void ExpectWithinAPlace(const Results& ours, const Results& operators, const Results& exact,
                               const std::vector<at::Tensor>& scales) {
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double off = FindUlps(operators[i], exact[i], scales[i]);
    EXPECT_LE(FindUlps(ours[i], exact[i], scales[i]), off + 1.0) << "result " << i;
  }
}

}  // namespace ds::models
