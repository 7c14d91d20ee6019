#pragma once

// What a HostGroup is made with.

#include <chrono>
#include <cstddef>

#include "runtime/comm/shm/group_layout.h"
#include "runtime/comm/shm/group_wait.h"

namespace ds::comm {

struct HostGroupOptions {
  RankOf self;
  // Whether the ranks are processes (then the end of one is noticed) or threads of one process.
  bool ranks_are_processes = true;
  // Per rank and staging buffer; a multiple of kMinChunkBytes, the same on all ranks. Larger ones
  // fall out of the cache, smaller ones wait more often. 0: DefaultChunkBytes.
  std::size_t chunk_bytes = 0;
  // How long to wait for a rank that neither ends nor comes.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

inline constexpr std::size_t kMinChunkBytes = kMaxLocalRanks * kCacheLine;
// 1 MiB for two ranks; less for more, so that all staging buffers together stay within 6 MiB, which
// the last-level cache of a small machine holds.
std::size_t DefaultChunkBytes(int size);

}  // namespace ds::comm
