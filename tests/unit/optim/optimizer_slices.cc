#include "tests/unit/optim/optimizer_slices.h"

#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>

#include <algorithm>

#include "runtime/comm/local_world.h"

namespace ds::optim {

OptimizerSlice RandomPart(const Optimizer& optimizer, std::int64_t count) {
  OptimizerSlice slice{.parameter = at::randn({count}), .gradient = at::randn({count})};
  for (std::size_t i = 0; i < optimizer.state_names({}).size(); ++i) {
    slice.state.push_back(at::rand({count}).mul_(0.1));
  }
  slice.segments = slice.owned = {{.parameter = 0, .start = 0, .count = count}};
  return slice;
}

OptimizerSlice CopyOf(const OptimizerSlice& slice) {
  OptimizerSlice copy = slice;
  copy.parameter = slice.parameter.clone();
  copy.gradient = slice.gradient.clone();
  for (at::Tensor& state : copy.state) state = state.clone();
  copy.published = at::Tensor();
  return copy;
}

void Step(Optimizer& optimizer, const Update& update, const std::vector<OptimizerSlice>& slices) {
  const auto world = comm::MakeLocalWorld(1);
  RankSlices all{
      .slices = slices,
      .for_each =
          [&](const VisitSlice& visit) { std::for_each(slices.begin(), slices.end(), visit); },
      .groups = {.all = world[0].get(), .gradients = world[0].get(), .shards = world[0].get()}};
  for (const OptimizerSlice& slice : slices) {
    for (const Segment& segment : slice.segments) {
      all.parameter_count = std::max(all.parameter_count, segment.parameter + 1);
    }
  }
  optimizer.Begin(update, all);
  for (const OptimizerSlice& slice : slices) optimizer.Apply(update, slice);
}

double Distance(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

bool SameBits(const OptimizerSlice& a, const OptimizerSlice& b) {
  bool same = a.parameter.equal(b.parameter) && a.state.size() == b.state.size();
  for (std::size_t i = 0; same && i < a.state.size(); ++i) same = a.state[i].equal(b.state[i]);
  return same;
}

}  // namespace ds::optim
