#include "runtime/optim/one_bit/one_bit_average.h"

#include <ATen/ops/cat.h>

#include <algorithm>

namespace ds::optim {
namespace {

// Gathered is a set of values with one scale in the compression: views of some parameters.
struct Gathered {
  ParameterGroup group;
  std::vector<at::Tensor> parameters;

  bool alone() const { return parameters.size() == 1; }
  at::Tensor Joined() const { return alone() ? parameters[0] : at::cat(parameters); }
};

Gathered& GroupFor(const OptimizerSlice& slice, std::vector<Gathered>* all) {
  if (slice.published.defined()) {
    const auto found = std::find_if(all->begin(), all->end(),
                                    [&](const Gathered& g) { return g.group == slice.group; });
    if (found != all->end()) return *found;
  }
  return all->emplace_back(Gathered{.group = slice.group, .parameters = {}});
}

std::vector<Gathered> Gather(const RankSlices& all, const std::vector<at::Tensor>& views) {
  std::vector<Gathered> gathered;
  for (std::size_t i = 0; i < all.slices.size(); ++i) {
    for (const Segment& segment : all.slices[i].segments) {
      GroupFor(all.slices[i], &gathered)
          .parameters.push_back(views[i].narrow(0, segment.start, segment.count));
    }
  }
  return gathered;
}

void CopyBack(const at::Tensor& joined, const Gathered& gathered) {
  if (gathered.alone()) return;
  std::int64_t start = 0;
  for (const at::Tensor& parameter : gathered.parameters) {
    parameter.copy_(joined.narrow(0, start, parameter.numel()));
    start += parameter.numel();
  }
}

}  // namespace

void OneBitAverage::Take(const RankSlices& all, const std::vector<at::Tensor>& views) {
  const std::vector<Gathered> gathered = Gather(all, views);
  std::vector<at::Tensor> buffers;
  std::int64_t bytes = 0;
  for (const Gathered& g : gathered) {
    buffers.push_back(g.Joined());
    if (!g.alone()) bytes += static_cast<std::int64_t>(buffers.back().nbytes());
  }
  const device::LedgerEntry entry = Book(all, device::MemoryUse::kCommBuffers, bytes);
  if (!compressed_) compressed_.emplace(*all.groups.gradients, all.ledger);
  compressed_->Average(buffers);
  for (std::size_t i = 0; i < gathered.size(); ++i) CopyBack(buffers[i], gathered[i]);
}

}  // namespace ds::optim
