// What computes its backward pass by loops of its own refuses a second derivative; what goes by
// LibTorch's operators has it.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "runtime/models/kernels/matmul.h"
#include "runtime/models/layers/activations.h"
#include "runtime/models/layers/lm_loss.h"
#include "runtime/models/layers/norms.h"
#include "runtime/models/layers/rotary.h"

namespace ds::models {
namespace {

using ::testing::HasSubstr;
using Function = std::function<at::Tensor(const at::Tensor&)>;

constexpr std::int64_t kRowWidth = 8;

at::Tensor Input(at::ScalarType dtype) {
  return at::randn({2, 3, 4, kRowWidth}, dtype).requires_grad_();
}

// The derivative of the sum of `function` by what it is given.
at::Tensor Differentiate(const Function& function, const at::Tensor& x, bool create_graph) {
  return torch::autograd::grad({function(x).sum()}, {x}, /*grad_outputs=*/{},
                               /*retain_graph=*/create_graph, create_graph)[0];
}

void ExpectRefusal(const std::string& part, const Function& function) {
  const at::Tensor x = Input(at::kFloat);
  EXPECT_TRUE(Differentiate(function, x, /*create_graph=*/false).defined());
  try {
    Differentiate(function, x, /*create_graph=*/true);
    ADD_FAILURE() << part << " has given a gradient without a graph";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                HasSubstr("the backward pass of " + part + " has no derivative of its own"));
  }
}

at::Tensor RowAngles(const at::Tensor& x) {
  return at::arange(4 * kRowWidth / 2, x.options().requires_grad(false))
      .view({4, kRowWidth / 2})
      .cos();
}

const Function kNorm = [](const at::Tensor& x) {
  return NormaliseByRms(x, at::randn({kRowWidth}, x.scalar_type()), 1e-6);
};
const Function kRotary = [](const at::Tensor& x) {
  return ApplyRotary(x, RowAngles(x), RowAngles(x));
};
const Function kSwiGlu = [](const at::Tensor& x) {
  return GatedActivation(Activation::kSilu, x, 2.0 * x);
};

TEST(SecondDerivative, IsRefusedByNameWhereTheFirstHasNoGraph) {
  ExpectRefusal("RMSNorm", kNorm);
  ExpectRefusal("rotary embedding", kRotary);
  ExpectRefusal("SwiGLU", kSwiGlu);
  ExpectRefusal("GELU", [](const at::Tensor& x) { return Activate(Activation::kGeluTanh, x); });
  ExpectRefusal("a linear layer", [](const at::Tensor& x) {
    return Affine(x, at::randn({5, kRowWidth}), /*bias=*/{}, WeightLayout::kOutIn);
  });
  ExpectRefusal("the language model's loss", [](const at::Tensor& x) {
    return LmLoss(x, at::randn({5, kRowWidth}), at::arange(24, at::kLong).remainder(5), {});
  });
}

// The row loops know no fp64.
TEST(SecondDerivative, IsLibTorchsElsewhere) {
  for (const Function& function : {kNorm, kSwiGlu}) {
    const at::Tensor x = Input(at::kDouble);
    const at::Tensor first = Differentiate(function, x, /*create_graph=*/true);
    EXPECT_TRUE(torch::autograd::grad({first.square().sum()}, {x})[0].ne(0.0).any().item<bool>());
  }
}

}  // namespace
}  // namespace ds::models
