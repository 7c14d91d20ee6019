#include "runtime/plan/sequence/portion_plan.h"

#include <algorithm>
#include <set>

namespace ds::sequence_parallel {
namespace {

std::vector<int> ListEarlier(int queries, const LooksAt& looks_at) {
  std::vector<int> earlier;
  for (int keys = 0; keys < queries; ++keys) {
    if (looks_at(queries, keys)) earlier.push_back(keys);
  }
  return earlier;
}

// `order` has every chunk once.
std::vector<PortionStep> PlanInOrder(const std::vector<int>& order, const LooksAt& looks_at) {
  std::vector<PortionStep> steps(order.size());
  std::set<int> looked_at;  // by later steps
  for (std::size_t i = order.size(); i-- > 0;) {
    PortionStep& step = steps[i];
    step.queries = order[i];
    step.keys_wait = looked_at.contains(step.queries);
    for (const int keys : ListEarlier(step.queries, looks_at)) {
      step.earlier.push_back({keys, looked_at.insert(keys).second});
    }
  }
  return steps;
}

}  // namespace

std::vector<TokenRange> CutPortions(std::int64_t tokens, std::int64_t portion) {
  std::vector<TokenRange> portions;
  for (std::int64_t first = 0; first < tokens; first += portion) {
    portions.push_back({first, std::min(portion, tokens - first)});
  }
  return portions;
}

std::vector<PortionStep> PlanForward(int portions, const LooksAt& looks_at) {
  std::vector<int> order;
  for (int i = 0; i < portions; ++i) order.push_back(i);
  return PlanInOrder(order, looks_at);
}

std::vector<PortionStep> PlanBackward(int portions, const LooksAt& looks_at) {
  std::vector<int> order;
  for (int i = portions; i-- > 0;) order.push_back(i);
  return PlanInOrder(order, looks_at);
}

}  // namespace ds::sequence_parallel
