#pragma once

// Splits the data of HostGroup's collectives into rounds. Shared by the sources of HostGroup.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/comm/shm/host_group.h"

namespace ds::comm {

// Copies `bytes` bytes. `bytes` may be 0, and `to` may equal `from`.
inline void Copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

inline std::size_t Rounds(std::size_t count, std::size_t per_round) {
  // A collective without data still runs one round, to meet its peers.
  return std::max<std::size_t>(1, (count + per_round - 1) / per_round);
}

// The elements [begin, begin + count) of one round.
struct Round {
  std::size_t begin;
  std::size_t count;
};

inline Round RoundOf(std::size_t index, std::size_t per_round, std::size_t total) {
  const std::size_t begin = std::min(total, index * per_round);
  return {.begin = begin, .count = std::min(per_round, total - begin)};
}

// Runs fill(round, interval) and, one interval later, take(round, interval of its fill).
template <typename Fill, typename Take>
Status HostGroup::RunRounds(const CallSignature& call, std::size_t rounds, Fill fill, Take take) {
  fill(std::size_t{0}, interval_);
  DS_RETURN_IF_ERROR(PassFirstBarrier(call));
  for (std::size_t round = 1; round < rounds; ++round) {
    take(round - 1, interval_ - 1);
    fill(round, interval_);
    DS_RETURN_IF_ERROR(PassBarrier(call));
  }
  take(rounds - 1, interval_ - 1);
  return OkStatus();
}

}  // namespace ds::comm
