#pragma once

// Ranks that make a group from another one agree on its name and its members by these.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/shm/call_signature.h"

namespace ds::comm {

// FNV-1a: equal in all processes of a job.
std::uint64_t HashOf(std::string_view text);

// The making of the group `name` of the ranks that errors call `ranks`. Those of two lists differ.
CallSignature JoinCall(const std::string& name, const std::vector<int>& ranks);

}  // namespace ds::comm
