#include "runtime/zero/bucket.h"

#include <algorithm>
#include <utility>

namespace ds::zero {
namespace {

using Members = std::vector<NamedParameter>;

bool HaveSameReduction(const NamedParameter& a, const NamedParameter& b) {
  return a.reduction == b.reduction && a.sparse_rows == b.sparse_rows && a.rounded == b.rounded &&
         a.placement.stages == b.placement.stages && a.placement.expert == b.placement.expert;
}

// Floating-point parameters all get the training dtype; quantised weights stay bytes. Experts are
// held by other ranks.
bool HaveSameStorage(const NamedParameter& a, const NamedParameter& b) {
  return a.rounded == b.rounded && a.placement.expert == b.placement.expert &&
         at::isFloatingType(a.tensor.scalar_type()) == at::isFloatingType(b.tensor.scalar_type());
}

bool HaveSameGroup(const NamedParameter& a, const NamedParameter& b) {
  const checkpoint::Placement &x = a.placement, &y = b.placement;
  return a.group == b.group && x.copy_axes == y.copy_axes && x.gradient_axes == y.gradient_axes;
}

// Sorts into lists in which all members are `alike` the first one, in order of first appearance.
template <typename Alike>
std::vector<Members> Sort(const Members& parameters, Alike alike) {
  std::vector<Members> lists;
  for (const NamedParameter& parameter : parameters) {
    const auto list = std::find_if(lists.begin(), lists.end(), [&](const Members& members) {
      return alike(members[0], parameter);
    });
    if (list == lists.end()) {
      lists.push_back({parameter});
    } else {
      list->push_back(parameter);
    }
  }
  return lists;
}

bool BeginsRange(const Members& members, std::size_t i) {
  return i == 0 || !HaveSameGroup(members[i - 1], members[i]);
}

std::vector<int> ListStarts(const Members& members) {
  std::vector<int> starts;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (BeginsRange(members, i)) starts.push_back(static_cast<int>(i));
  }
  return starts;
}

GradientTravel MakeGradientWire(const Context& context, const FlatParameters& parameters) {
  const NamedParameter& first = parameters.parameter(0);
  GradientTravel wire{.dtype = first.reduction.value_or(context.dtypes.reduction),
                      .tag = first.name,
                      .rounded = first.rounded};
  if (!first.sparse_rows) return wire;
  for (int i = 0; i < parameters.layout().size(); ++i) {
    wire.row_widths.push_back(parameters.parameter(i).tensor.size(-1));
  }
  return wire;
}

}  // namespace

std::vector<Members> BucketParameters(const Members& parameters) {
  Members trained, frozen;
  for (const NamedParameter& parameter : parameters) {
    (parameter.tensor.requires_grad() ? trained : frozen).push_back(parameter);
  }
  std::vector<Members> buckets = Sort(trained, HaveSameReduction);
  for (Members& bucket : buckets) {
    Members sorted;
    for (Members& alike : Sort(bucket, HaveSameGroup)) {
      std::move(alike.begin(), alike.end(), std::back_inserter(sorted));
    }
    bucket = std::move(sorted);
  }
  for (Members& alike : Sort(frozen, HaveSameStorage)) buckets.push_back(std::move(alike));
  return buckets;
}

Bucket::Bucket(const Context& context, BufferPool& pool, Members members, StorageTier storage_tier)
    : context_(context), parameters_(context, pool, members, ListStarts(members), storage_tier) {
  if (!members[0].tensor.requires_grad()) return;
  const FlatLayout& layout = parameters_.layout();
  gradients_ = std::make_unique<FlatGradients>(context, pool, layout,
                                               MakeGradientWire(context, parameters_));
  for (const int first : ListStarts(members)) {
    const std::int64_t start = layout.parameter(first).start;
    if (first > 0) ranges_.back().range.count = start - ranges_.back().range.start;
    ranges_.push_back({first, {start, layout.padded_numel() - start}});
  }
}

}  // namespace ds::zero
