#pragma once

// MakeLocalWorld: ranks as threads of this process, for tests and for what needs no other rank.

#include <memory>
#include <vector>

#include "runtime/comm/communicator.h"

namespace ds::comm {

// Entry r belongs to rank r's thread. The same algorithms as between processes, over private
// memory.
std::vector<std::unique_ptr<Communicator>> MakeLocalWorld(int size);

}  // namespace ds::comm
