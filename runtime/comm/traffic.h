#pragma once

// Traffic: how much a rank has put through its groups since it joined the job, by kind of call, and
// what of that went between hosts. TrafficCounters: the count under way, of a communicator and all
// that were made from it.
//
// The bytes of a call are those of its whole tensor, whatever the ranks make of it: what each rank
// has of an all-reduce, a broadcast or a reduce, what all give or get together of an all-gather, a
// reduce-scatter, a gather or a scatter; what this rank gives to an all-to-all, and what it sends
// and receives. Bytes between hosts are those of the connections, headers included: of CPU ranks,
// for NCCL counts none.

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

// The words of metrics.jsonl: "all_reduce", "p2p", ...
std::string_view TrafficKindName(TrafficKind kind);

struct Traffic {
  struct OfKind {
    std::uint64_t calls = 0;
    std::uint64_t bytes = 0;

    bool operator==(const OfKind&) const = default;
  };
  std::array<OfKind, kTrafficKinds> kinds;
  std::optional<BytesBetweenHosts> between_hosts;  // none where the ranks share a host, or use NCCL

  const OfKind& of(TrafficKind kind) const { return kinds[static_cast<std::size_t>(kind)]; }
};

// Tells what has come since `before`, an earlier count of the same communicator.
Traffic Since(const Traffic& before, const Traffic& now);

// {"all_reduce":{"calls":2,"bytes":4096},...,"between_hosts":{"sent":1,"received":2}}; only kinds
// that were called.
nlohmann::ordered_json ToJson(const Traffic& traffic);

// Threads: all methods are safe to call concurrently.
class TrafficCounters {
 public:
  void Count(TrafficKind kind, std::size_t bytes) {
    Cell& cell = cells_[static_cast<std::size_t>(kind)];
    cell.calls.fetch_add(1, std::memory_order_relaxed);
    cell.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  Traffic Read() const;  // without what goes between hosts

 private:
  struct Cell {
    std::atomic<std::uint64_t> calls{0};
    std::atomic<std::uint64_t> bytes{0};
  };
  std::array<Cell, kTrafficKinds> cells_;
};

}  // namespace ds::comm
