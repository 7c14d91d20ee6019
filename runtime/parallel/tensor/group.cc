#include "runtime/parallel/tensor/group.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/comm/communicator.h"

namespace ds::tensor_parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Sums a copy, because autograd's tensor may have other readers.
at::Tensor SumOf(const at::Tensor& tensor, const TensorGroup& group, std::string_view tag) {
  at::Tensor sum = at::empty(tensor.sizes(), tensor.options());
  sum.copy_(tensor);
  group.Sum(sum, tag);
  return sum;
}

class AddUpFunction : public torch::autograd::Function<AddUpFunction> {
 public:
  static at::Tensor forward(AutogradContext*, const at::Tensor& x, const TensorGroup& group,
                            const std::string& tag) {
    return SumOf(x, group, tag);
  }
  static variable_list backward(AutogradContext*, const variable_list& upstream) {
    return {upstream[0], {}, {}};
  }
};

}  // namespace

TensorGroup::TensorGroup(comm::Communicator& ranks, bool sums_overlap)
    : ranks_(ranks.size() > 1 ? &ranks : nullptr),
      rank_(ranks.rank()),
      size_(ranks.size()),
      sums_overlap_(sums_overlap) {}

void TensorGroup::Sum(const at::Tensor& tensor, std::string_view tag) const {
  if (ranks_ != nullptr) ranks_->AllReduce(tensor, comm::ReduceOp::kSum, tag);
}

comm::Work TensorGroup::StartSum(const at::Tensor& tensor, std::string_view tag) const {
  DS_CHECK(ranks_ != nullptr);
  return ranks_->AllReduceAsync(tensor, comm::ReduceOp::kSum, tag);
}

at::Tensor TensorGroup::Gather(const at::Tensor& tensor, std::string_view tag) const {
  if (ranks_ == nullptr) return tensor.unsqueeze(0);
  std::vector<std::int64_t> shape = tensor.sizes().vec();
  shape.insert(shape.begin(), size_);
  at::Tensor all = at::empty(shape, tensor.options());
  ranks_->AllGather(all.view({-1}), tensor.contiguous().view({-1}), tag);
  return all;
}

at::Tensor TensorGroup::Share(const at::Tensor& x, std::string_view tag) const {
  if (ranks_ == nullptr || !c10::GradMode::is_enabled() || !x.requires_grad()) return x;
  at::Tensor shared = x.view_as(x);
  shared.register_hook([group = *this, tag = std::string(tag)](const at::Tensor& gradient) {
    return SumOf(gradient, group, tag);
  });
  return shared;
}

at::Tensor TensorGroup::AddUp(const at::Tensor& x, std::string_view tag) const {
  return ranks_ == nullptr ? x : AddUpFunction::apply(x, *this, std::string(tag));
}

}  // namespace ds::tensor_parallel
