#include "tests/unit/optim/parts.h"

#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>

#include <algorithm>

#include "runtime/comm/local_world.h"

namespace ds::optim {

Part RandomPart(const Optimizer& optimizer, std::int64_t count) {
  Part part{.parameter = at::randn({count}), .gradient = at::randn({count})};
  for (std::size_t i = 0; i < optimizer.state_names({}).size(); ++i) {
    part.state.push_back(at::rand({count}).mul_(0.1));
  }
  part.segments = part.owned = {{.parameter = 0, .start = 0, .count = count}};
  return part;
}

Part CopyOf(const Part& part) {
  Part copy = part;
  copy.parameter = part.parameter.clone();
  copy.gradient = part.gradient.clone();
  for (at::Tensor& state : copy.state) state = state.clone();
  copy.published = at::Tensor();
  return copy;
}

void Step(Optimizer& optimizer, const Update& update, const std::vector<Part>& parts) {
  const auto world = comm::MakeLocalWorld(1);
  RankParts all{
      .parts = parts,
      .for_each = [&](const VisitPart& visit) { std::for_each(parts.begin(), parts.end(), visit); },
      .groups = {.all = world[0].get(), .gradients = world[0].get(), .shards = world[0].get()}};
  for (const Part& part : parts) {
    for (const Segment& segment : part.segments) {
      all.parameter_count = std::max(all.parameter_count, segment.parameter + 1);
    }
  }
  optimizer.Begin(update, all);
  for (const Part& part : parts) optimizer.Apply(update, part);
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
