#include "runtime/optim/kernels/optimizer_slice.h"

namespace ds::optim {

OptimizerSlice Cut(const OptimizerSlice& slice, std::int64_t start, std::int64_t count) {
  const auto slice_of = [&](const at::Tensor& view) {
    return view.defined() ? view.narrow(0, start, count) : view;
  };
  OptimizerSlice result{.parameter = slice_of(slice.parameter),
                        .gradient = slice_of(slice.gradient),
                        .published = slice_of(slice.published),
                        .launch = slice.launch,
                        .group = slice.group};
  for (const at::Tensor& state : slice.state) result.state.push_back(slice_of(state));
  return result;
}

void Publish(const OptimizerSlice& slice) {
  if (slice.published.defined()) slice.published.copy_(slice.parameter);
}

}  // namespace ds::optim
