#include "runtime/comm/shm/subgroup.h"

#include "runtime/base/fnv.h"

namespace ds::comm {

CallSignature JoinCall(const std::string& name, const std::vector<int>& ranks) {
  std::string list;
  for (const int rank : ranks) list += (list.empty() ? "" : ", ") + std::to_string(rank);
  const std::string text = name + " of ranks " + list;
  return {.kind = CallKind::kJoin, .count = HashFnv1a(text), .tag = CallTag(text)};
}

}  // namespace ds::comm
