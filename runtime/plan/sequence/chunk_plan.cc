#include "runtime/plan/sequence/chunk_plan.h"

#include <algorithm>
#include <set>

namespace ds::sequence_parallel {
namespace {

std::vector<int> ListEarlier(int queries, const AttendsTo& looks_at) {
  std::vector<int> earlier;
  for (int keys = 0; keys < queries; ++keys) {
    if (looks_at(queries, keys)) earlier.push_back(keys);
  }
  return earlier;
}

// `order` has every chunk once.
std::vector<ChunkStep> PlanInOrder(const std::vector<int>& order, const AttendsTo& looks_at) {
  std::vector<ChunkStep> steps(order.size());
  std::set<int> looked_at;  // by later steps
  for (std::size_t i = order.size(); i-- > 0;) {
    ChunkStep& step = steps[i];
    step.queries = order[i];
    step.keeps_keys = looked_at.contains(step.queries);
    for (const int keys : ListEarlier(step.queries, looks_at)) {
      step.earlier.push_back({keys, looked_at.insert(keys).second});
    }
  }
  return steps;
}

}  // namespace

std::vector<TokenRange> SplitIntoChunks(std::int64_t tokens, std::int64_t chunk) {
  std::vector<TokenRange> chunks;
  for (std::int64_t first = 0; first < tokens; first += chunk) {
    chunks.push_back({first, std::min(chunk, tokens - first)});
  }
  return chunks;
}

std::vector<ChunkStep> PlanForward(int chunks, const AttendsTo& looks_at) {
  std::vector<int> order;
  for (int i = 0; i < chunks; ++i) order.push_back(i);
  return PlanInOrder(order, looks_at);
}

std::vector<ChunkStep> PlanBackward(int chunks, const AttendsTo& looks_at) {
  std::vector<int> order;
  for (int i = chunks; i-- > 0;) order.push_back(i);
  return PlanInOrder(order, looks_at);
}

}  // namespace ds::sequence_parallel
