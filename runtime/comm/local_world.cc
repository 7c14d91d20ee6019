#include "runtime/comm/local_world.h"

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/host_backend.h"
#include "runtime/comm/shm/host_group.h"

namespace ds::comm {

std::vector<std::unique_ptr<Communicator>> MakeLocalWorld(int size) {
  HostGroupOptions options;
  options.self = {.rank = 0, .size = size};
  options.ranks_are_processes = false;
  StatusOr<SharedRegion> region = SharedRegion::Private(HostGroup::RegionBytes(options));
  TORCH_CHECK(region.ok(), region.status().message());
  const auto shared = std::make_shared<SharedRegion>(std::move(region).value());
  // The name is unique on this machine: it holds the process id and an address of this process.
  options.meeting = "dsrun-threads/" + std::to_string(::getpid()) + "/" +
                    std::to_string(reinterpret_cast<std::uintptr_t>(shared->data()));
  std::vector<std::unique_ptr<Communicator>> world;
  for (int rank = 0; rank < size; ++rank) {
    options.self.rank = rank;
    world.push_back(std::make_unique<Communicator>(
        c10::make_intrusive<HostBackend>(std::make_unique<HostGroup>(shared, options))));
  }
  return world;
}

}  // namespace ds::comm
