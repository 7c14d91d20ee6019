#pragma once

// Traffic: the calls and bytes of a rank's groups since it joined the job, by kind of call, and the
// bytes sent between hosts. TrafficCounters: the running counts of a communicator and all groups
// made from it.
//
// Bytes of a call are the bytes of its full tensor, independent of the algorithm:
//   all-reduce, broadcast, reduce                one rank's tensor
//   all-gather, reduce-scatter, gather, scatter  the tensors of all ranks together
//   all-to-all                                   this rank's input
//   send, receive                                the message
// Bytes between hosts are counted on the connections of CPU ranks, headers included. NCCL's are not
// counted.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

#include "runtime/comm/shm/cpu_group.h"

namespace ds::comm {

enum class TrafficKind {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kPointToPoint,
};
inline constexpr std::size_t kTrafficKinds = 9;

// Returns the name used in metrics.jsonl: "all_reduce", "p2p", ...
std::string_view TrafficKindName(TrafficKind kind);

struct Traffic {
  struct OfKind {
    std::uint64_t calls = 0;
    std::uint64_t bytes = 0;

    bool operator==(const OfKind&) const = default;
  };
  std::array<OfKind, kTrafficKinds> kinds;
  std::optional<BytesBetweenHosts> between_hosts;  // absent if the ranks share a host or use NCCL

  const OfKind& of(TrafficKind kind) const { return kinds[static_cast<std::size_t>(kind)]; }
};

// Returns the traffic since `before`, an earlier count of the same communicator.
Traffic Since(const Traffic& before, const Traffic& now);

// Returns {"all_reduce":{"calls":2,"bytes":4096},...,"between_hosts":{"sent":1,"received":2}}, with
// only the kinds that were called.
nlohmann::ordered_json ToJson(const Traffic& traffic);

// Thread-safe.
class TrafficCounters {
 public:
  void Count(TrafficKind kind, std::size_t bytes) {
    Cell& cell = cells_[static_cast<std::size_t>(kind)];
    cell.calls.fetch_add(1, std::memory_order_relaxed);
    cell.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  Traffic Read() const;  // without the bytes between hosts

 private:
  struct Cell {
    std::atomic<std::uint64_t> calls{0};
    std::atomic<std::uint64_t> bytes{0};
  };
  std::array<Cell, kTrafficKinds> cells_;
};

}  // namespace ds::comm
