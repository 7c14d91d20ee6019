// A product by groups, on the CPU, where LibTorch loops over them, is each group's own product, and
// so are its gradients.

#include "runtime/models/kernels/grouped_product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

namespace ds::models {
namespace {

constexpr std::int64_t kIn = 8, kOut = 16, kStep = 200;  // more than a matrix has
using Counts = std::vector<std::int64_t>;

// Matrices of one flat buffer, some values apart.
std::vector<at::Tensor> MakeMatrices(std::int64_t count, at::ScalarType dtype) {
  const at::Tensor flat = at::randn({count * kStep}).to(dtype);
  std::vector<at::Tensor> matrices;
  for (std::int64_t i = 0; i < count; ++i) {
    matrices.push_back(flat.narrow(0, i * kStep, kIn * kOut).view({kOut, kIn}));
    matrices.back().set_requires_grad(true);
  }
  return matrices;
}

at::Tensor LoopOverGroups(const at::Tensor& rows, const std::vector<at::Tensor>& matrices,
                          const Counts& counts) {
  std::vector<at::Tensor> results;
  const auto parts = rows.split_with_sizes(counts, 0);
  for (std::size_t i = 0; i < matrices.size(); ++i) results.push_back(parts[i].mm(matrices[i].t()));
  return at::cat(results);
}

TEST(GroupedProduct, IsThatOfEachGroupAndSoAreItsGradients) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(dtype == at::kFloat ? "fp32" : "bf16");
    const Counts counts{3, 0, 5, 1};  // one has no row
    const auto matrices = MakeMatrices(4, dtype);
    const at::Tensor rows = at::randn({9, kIn}).to(dtype).requires_grad_();
    const at::Tensor upstream = at::randn({9, kOut}).to(dtype);
    const at::Tensor expected = LoopOverGroups(rows, matrices, counts);
    expected.backward(upstream);
    std::vector<at::Tensor> of_matrices;
    for (const at::Tensor& matrix : matrices) {
      of_matrices.push_back(std::exchange(matrix.mutable_grad(), at::Tensor()));
    }
    const at::Tensor of_rows = std::exchange(rows.mutable_grad(), at::Tensor());
    const double tolerance = dtype == at::kFloat ? 1e-5 : 2e-2;
    const at::Tensor ours = GroupedProduct(rows, matrices, counts);
    EXPECT_TRUE(ours.allclose(expected, tolerance, tolerance));
    ours.backward(upstream);
    EXPECT_TRUE(rows.grad().allclose(of_rows, tolerance, tolerance));
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      ASSERT_TRUE(matrices[i].grad().defined()) << i;
      EXPECT_TRUE(matrices[i].grad().allclose(of_matrices[i], tolerance, tolerance)) << i;
    }
    EXPECT_EQ(matrices[1].grad().abs().sum().item<double>(), 0.0);
  }
}

TEST(GroupedProduct, StacksEquallySpacedMatrices) {
  const auto matrices = MakeMatrices(3, at::kFloat);
  const auto stacked = StackMatrices(matrices);
  ASSERT_TRUE(stacked.has_value());
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    EXPECT_TRUE(stacked->select(0, static_cast<std::int64_t>(i)).equal(matrices[i]));
    EXPECT_TRUE(stacked->is_alias_of(matrices[i])) << "no copy";
  }
  EXPECT_FALSE(StackMatrices({matrices[0], matrices[2], matrices[1]}).has_value());
  EXPECT_FALSE(StackMatrices({matrices[0], matrices[1].clone(), matrices[2]}).has_value());
  EXPECT_FALSE(StackMatrices({matrices[0], at::Tensor()}).has_value());
  EXPECT_FALSE(GroupsProducts(at::randn({4, kIn}), matrices)) << "no GPU";
}

}  // namespace
}  // namespace ds::models
