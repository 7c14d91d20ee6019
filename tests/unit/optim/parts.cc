#include "tests/unit/optim/parts.h"

#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>

namespace ds::optim {

Part RandomPart(const Optimizer& optimizer, std::int64_t count) {
  Part part{.parameter = at::randn({count}), .gradient = at::randn({count})};
  for (std::size_t i = 0; i < optimizer.state_names().size(); ++i) {
    part.state.push_back(at::rand({count}).mul_(0.1));
  }
  return part;
}

Part CopyOf(const Part& part) {
  Part copy{.parameter = part.parameter.clone(), .gradient = part.gradient.clone()};
  for (const at::Tensor& state : part.state) copy.state.push_back(state.clone());
  return copy;
}

double Distance(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

bool SameBits(const Part& a, const Part& b) {
  bool same = a.parameter.equal(b.parameter) && a.state.size() == b.state.size();
  for (std::size_t i = 0; same && i < a.state.size(); ++i) same = a.state[i].equal(b.state[i]);
  return same;
}

}  // namespace ds::optim
