#include "runtime/optim/kernels/part.h"

namespace ds::optim {

Part Cut(const Part& part, std::int64_t start, std::int64_t count) {
  const auto cut = [&](const at::Tensor& view) {
    return view.defined() ? view.narrow(0, start, count) : view;
  };
  Part result{.parameter = cut(part.parameter),
              .gradient = cut(part.gradient),
              .published = cut(part.published),
              .launch = part.launch,
              .group = part.group};
  for (const at::Tensor& state : part.state) result.state.push_back(cut(state));
  return result;
}

void Publish(const Part& part) {
  if (part.published.defined()) part.published.copy_(part.parameter);
}

}  // namespace ds::optim
