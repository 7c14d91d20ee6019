#pragma once

// MakeLocalWorld: creates ranks as threads of this process, for tests and for work that needs no
// other rank.

#include <memory>
#include <vector>

#include "runtime/comm/communicator.h"

namespace ds::comm {

// Returns one Communicator per rank; entry r is for rank r's thread. They run the same algorithms
// as between processes, over private memory.
std::vector<std::unique_ptr<Communicator>> MakeLocalWorld(int size);

}  // namespace ds::comm
