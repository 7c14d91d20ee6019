#include "runtime/optim/kernels/part.h"

namespace ds::optim {

Part Cut(const Part& part, std::int64_t start, std::int64_t count) {
  const auto cut = [&](const at::Tensor& view) {
    return view.defined() ? view.narrow(0, start, count) : view;
  };
  Part result{.parameter = cut(part.parameter),
              .gradient = cut(part.gradient),
              .published = cut(part.published),
              .group = part.group};
  for (const at::Tensor& state : part.state) result.state.push_back(cut(state));
  return result;
}

void Publish(const Part& part) {
  if (part.published.defined()) part.published.copy_(part.parameter);
}

device::LedgerEntry Book(const RankParts& all, device::MemoryUse use, std::int64_t bytes) {
  const bool host = all.parts.empty() || all.parts[0].parameter.is_cpu();
  return {all.ledger, use, device::TierOf(host), bytes};
}

}  // namespace ds::optim
