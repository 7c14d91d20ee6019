#include "tests/support/rank_harness.h"
#include "runtime/comm/local_world.h"

#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace ds::testing {

void RunRanks(int world_size, const std::function<void(comm::Communicator&)>& body) {
  std::vector<std::unique_ptr<comm::Communicator>> world = comm::MakeLocalWorld(world_size);
  std::mutex mutex;
  std::exception_ptr first_failure;
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < world_size; ++rank) {
      ranks.emplace_back([&, rank] {
        const std::unique_ptr<comm::Communicator> self = std::move(world[rank]);
        try {
          body(*self);
        } catch (...) {
          // Recorded before `self` goes and makes the peers fail too.
          const std::lock_guard lock(mutex);
          if (!first_failure) first_failure = std::current_exception();
        }
      });
    }
  }
  if (first_failure) std::rethrow_exception(first_failure);
}

}  // namespace ds::testing
