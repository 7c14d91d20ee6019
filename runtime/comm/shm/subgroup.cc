#include "runtime/comm/shm/subgroup.h"

namespace ds::comm {

std::uint64_t HashOf(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : text) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  }
  return hash;
}

CallSignature JoinCall(const std::string& name, const std::vector<int>& ranks) {
  std::string list;
  for (const int rank : ranks) list += (list.empty() ? "" : ", ") + std::to_string(rank);
  const std::string text = name + " of ranks " + list;
  return {.kind = CallKind::kJoin, .count = HashOf(text), .tag = CallTag(text)};
}

}  // namespace ds::comm
