#pragma once

// JoinCall: the call with which ranks agree on the name and members of a new subgroup.

#include <string>
#include <vector>

#include "runtime/comm/shm/call_signature.h"

namespace ds::comm {

// Returns the call that creates the group `name` of `ranks`, which are numbers as in errors.
// Different lists of ranks give different calls.
CallSignature JoinCall(const std::string& name, const std::vector<int>& ranks);

}  // namespace ds::comm
