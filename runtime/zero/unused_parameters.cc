#include "runtime/zero/unused_parameters.h"

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/zero/groups.h"
#include "runtime/zero/rank_totals.h"

namespace ds::zero {
namespace {

constexpr std::size_t kNamed = 5;

struct Trained {
  std::vector<std::string> unused;
  std::size_t count = 0;  // of all, in model order
};

Trained FindUnused(const ShardedModel& model) {
  std::vector<std::string> names;
  std::vector<double> received;
  ForEachTrainableGroup(model, [&](const Group& group, std::int64_t) {
    const std::vector<bool>& of_group = group.gradients->received_in_step();
    for (std::size_t i = 0; i < of_group.size(); ++i) {
      names.push_back(group.parameters.parameter(static_cast<int>(i)).name);
      received.push_back(of_group[i] ? 1.0 : 0.0);
    }
  });
  const auto ranks = GatherNumbers(model.context(), received);
  Trained trained{.count = names.size()};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool used = std::any_of(ranks.begin(), ranks.end(),
                                  [i](const auto& of_rank) { return of_rank[i] != 0.0; });
    if (!used) trained.unused.push_back(names[i]);
  }
  return trained;
}

}  // namespace

Status CheckNoneIsUnused(const ShardedModel& model) {
  const auto [unused, count] = FindUnused(model);
  if (unused.empty()) return OkStatus();
  std::string text = std::to_string(unused.size()) + " of " + std::to_string(count) +
                     " trained parameters without a part in the loss";
  const std::size_t named = std::min(kNamed, unused.size());
  for (std::size_t i = 0; i < named; ++i) text += (i == 0 ? ": " : ", ") + unused[i];
  if (unused.size() > named) text += " and " + std::to_string(unused.size() - named) + " more";
  return FailedPreconditionError(text +
                                 "; use them, freeze them (requires_grad false), or leave "
                                 "zero_optimization.ignore_unused_parameters at true");
}

}  // namespace ds::zero
