#pragma once

// A HostGroup per thread over private memory: the collectives' core without LibTorch or processes.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/shm/host_group.h"

namespace ds::comm {

// Small chunks, so that moderate sizes take several rounds.
inline HostGroupOptions SmallChunks(int size) {
  HostGroupOptions options;
  options.self.size = size;
  options.ranks_are_processes = false;
  options.chunk_bytes = kMinChunkBytes;
  return options;
}

// The ranks that share this memory meet there to make groups: nobody else has that name.
inline std::string MeetingOf(const SharedRegion& region) {
  return "dsrun-test/" + std::to_string(::getpid()) + "/" +
         std::to_string(reinterpret_cast<std::uintptr_t>(region.data()));
}

inline void RunGroup(HostGroupOptions options, const std::function<void(HostGroup&)>& body) {
  StatusOr<SharedRegion> region = SharedRegion::Private(HostGroup::RegionBytes(options));
  ASSERT_TRUE(region.ok()) << region.status().message();
  const auto shared = std::make_shared<SharedRegion>(std::move(region).value());
  options.meeting = MeetingOf(*shared);
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < options.self.size; ++rank) {
    options.self.rank = rank;
    ranks.emplace_back([&body, shared, options] {
      HostGroup group(shared, options);
      body(group);
    });
  }
}

}  // namespace ds::comm
