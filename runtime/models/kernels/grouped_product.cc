#include "runtime/models/kernels/grouped_product.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>

#include "runtime/autograd/put_gradient.h"
#include "runtime/base/check.h"
#include "runtime/device/kernels/first_derivative.h"

namespace ds::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Counts = std::vector<std::int64_t>;

// Returns the end of each group.
at::Tensor EndsOf(const Counts& counts, c10::Device device) {
  std::vector<std::int32_t> ends;
  std::int64_t end = 0;
  for (const std::int64_t count : counts) {
    ends.push_back(static_cast<std::int32_t>(end += count));
  }
  return at::tensor(ends, at::kInt).to(device);
}

// Computes the gradients of all matrices together, when the first is requested.
class GradientsOfMatrices {
 public:
  GradientsOfMatrices(at::Tensor upstream, at::Tensor rows, at::Tensor ends)
      : upstream_(std::move(upstream)), rows_(std::move(rows)), ends_(std::move(ends)) {}

  void Write(std::int64_t group, std::int64_t count, at::Tensor& target, float beta) {
    if (count == 0) {  // kernels may leave old values there
      if (beta == 0.0F) target.zero_();
      return;
    }
    if (!all_.defined()) all_ = at::_grouped_mm(upstream_.t(), rows_, ends_);
    const at::Tensor own = all_.select(0, group);
    beta == 0.0F ? target.copy_(own) : target.add_(own);
  }

 private:
  at::Tensor upstream_, rows_, ends_, all_;
};

class GroupedFunction : public torch::autograd::Function<GroupedFunction> {
 public:
  // LibTorch finds variables in a TensorList, but not in a vector.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            at::TensorList matrices, const Counts& counts) {
    variable_list saved{rows};
    saved.insert(saved.end(), matrices.begin(), matrices.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["counts"] = counts;
    const auto stacked = StackMatrices(matrices.vec());
    DS_CHECK(stacked.has_value());
    return at::_grouped_mm(rows, stacked->transpose(1, 2), EndsOf(counts, rows.device()));
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    kernels::CheckIsFirstDerivative("a product by groups");
    const auto saved = context->get_saved_variables();
    const variable_list matrices(saved.begin() + 1, saved.end());
    const Counts counts = context->saved_data["counts"].toIntVector();
    const at::Tensor gradient = upstream[0].contiguous();
    const at::Tensor ends = EndsOf(counts, gradient.device());
    variable_list result(saved.size() + 1);  // plus nothing for the counts
    if (context->needs_input_grad(0)) {
      const auto stacked = StackMatrices(matrices);
      DS_CHECK(stacked.has_value());
      result[0] = at::_grouped_mm(gradient, *stacked, ends);
    }
    const auto all = std::make_shared<GradientsOfMatrices>(gradient, saved[0], ends);
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      if (!context->needs_input_grad(i + 1)) continue;
      const auto group = static_cast<std::int64_t>(i);
      result[i + 1] = gradients::PutOrMakeGradient(
          matrices[i], [all, group, count = counts[i]](at::Tensor& target, float beta) {
            all->Write(group, count, target, beta);
          });
    }
    return result;
  }
};

}  // namespace

std::optional<at::Tensor> StackMatrices(const std::vector<at::Tensor>& matrices) {
  if (matrices.empty() || !matrices[0].defined()) return std::nullopt;
  const at::Tensor& first = matrices[0];
  const std::int64_t step =
      matrices.size() == 1
          ? first.numel()
          : (matrices[1].defined() ? matrices[1].storage_offset() : 0) - first.storage_offset();
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const at::Tensor& each = matrices[i];
    const bool is_there =
        each.defined() && each.is_contiguous() && each.sizes() == first.sizes() &&
        each.scalar_type() == first.scalar_type() && each.is_alias_of(first) &&
        each.storage_offset() == first.storage_offset() + static_cast<std::int64_t>(i) * step;
    if (!is_there) return std::nullopt;
  }
  if (step < first.numel()) return std::nullopt;
  const auto count = static_cast<std::int64_t>(matrices.size());
  return first.detach().as_strided({count, first.size(0), first.size(1)}, {step, first.size(1), 1},
                                   first.storage_offset());
}

bool GroupsProducts(const at::Tensor& rows, const std::vector<at::Tensor>& matrices) {
  if (!rows.is_cuda() || at::autocast::is_autocast_enabled(at::kCUDA)) return false;
  if (rows.scalar_type() != at::kBFloat16 || rows.size(0) == 0) return false;
  const auto stacked = StackMatrices(matrices);
  if (!stacked || stacked->scalar_type() != at::kBFloat16) return false;
  constexpr std::int64_t kElements = 8;  // 16 bytes, as the kernels read
  return stacked->size(1) % kElements == 0 && stacked->size(2) % kElements == 0 &&
         stacked->stride(0) % kElements == 0 && stacked->storage_offset() % kElements == 0;
}

at::Tensor GroupedProduct(const at::Tensor& rows, const std::vector<at::Tensor>& matrices,
                          const std::vector<std::int64_t>& counts) {
  return GroupedFunction::apply(rows.contiguous(), at::TensorList(matrices), counts);
}

}  // namespace ds::models
