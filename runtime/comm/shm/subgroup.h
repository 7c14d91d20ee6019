#pragma once

// JoinCall: the call by which ranks that make a group from another one agree on its name and its
// members.

#include <string>
#include <vector>

#include "runtime/comm/shm/call_signature.h"

namespace ds::comm {

// The making of the group `name` of the ranks that errors call `ranks`. Those of two lists differ.
CallSignature JoinCall(const std::string& name, const std::vector<int>& ranks);

}  // namespace ds::comm
