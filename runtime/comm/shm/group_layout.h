#pragma once

// GroupLayout: the byte layout of the shared region of one group.
//
//     GroupHeader | RankLine[W] | staging[W][kStagingBuffers][chunk_bytes] |
//     (Channel, slots[kChannelSlots][slot_bytes])[W][W]
//
// A new region is all zero bytes, which is a valid initial state for everything below. Parts that
// one rank writes often are on separate cache lines.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/comm/shm/call_signature.h"

namespace ds::comm {

inline constexpr std::size_t kCacheLine = 64;
// A buffer is written in one interval and read in the next two (see host_group.h).
inline constexpr int kStagingBuffers = 3;
inline constexpr int kChannelSlots = 4;
inline constexpr int kMaxLocalRanks = 256;

// Returns the size of a channel's slots: 64 KiB for up to 32 ranks. For more ranks it is reduced to
// keep the slots of all pairs within 256 MiB. Address space limits count this memory, though most
// of it is never touched.
constexpr std::size_t ChannelSlotBytes(int size) {
  constexpr std::size_t kAllChannels = std::size_t{256} << 20;
  std::size_t bytes = std::size_t{64} * 1024;
  const auto pairs = static_cast<std::size_t>(size) * static_cast<std::size_t>(size);
  while (pairs * kChannelSlots * bytes > kAllChannels) bytes /= 2;
  return bytes;
}

// Bell: a futex word on which ranks sleep until a change (group_wait.h). It is separate from the
// changed data, so that no ring is missed: a ringing rank increments `rings` first.
struct alignas(kCacheLine) Bell {
  std::atomic<std::uint32_t> rings;
  std::atomic<std::uint32_t> sleepers;  // avoids a system call in Ring when no rank sleeps
};

struct GroupHeader {
  alignas(kCacheLine) std::atomic<std::uint64_t> arrivals;  // of all ranks at all barriers so far
  alignas(kCacheLine) std::atomic<std::uint32_t> interval;  // barriers completed so far
  Bell at_barrier;                                          // rings when `interval` changes
  alignas(kCacheLine) std::atomic<std::uint64_t> failure;   // the first (group_wait.cc); 0: none
  Bell at_end;                                              // rings when `failure` changes
};

struct alignas(kCacheLine) RankLine {
  std::atomic<std::int32_t> pid;        // 0: not joined yet
  std::atomic<std::uint64_t> started;   // start time of that process; written before `pid`
  std::atomic<std::uint32_t> has_left;  // 1 once the rank has left the group
  std::atomic<std::uint64_t> arrived;   // barriers at which this rank has arrived
  std::atomic<std::uint32_t> core;      // the core on which it ran when it last waited
  std::array<CallSignature, 2> calls;   // of this and the previous collective, by parity
  Bell bell;                            // rings when one of the rank's channels changes
  std::array<char, 512> cause;          // why this rank has ended the group; ends with a zero
};

// One direction between two ranks: a ring of slots, stored directly after this struct.
struct Channel {
  alignas(kCacheLine) std::atomic<std::uint32_t> written;              // slots filled so far
  alignas(kCacheLine) std::atomic<std::uint32_t> read;                 // slots emptied so far
  alignas(kCacheLine) std::array<CallSignature, kChannelSlots> calls;  // in a message's first slot
};

// Locates the parts of the mapping that starts at `base`.
class GroupLayout {
 public:
  // Requires: 1 <= size <= kMaxLocalRanks, and chunk_bytes is a multiple of the cache line.
  GroupLayout(std::byte* base, int size, std::size_t chunk_bytes)
      : base_(base), size_(size), chunk_bytes_(chunk_bytes) {}

  static std::size_t RegionBytes(int size, std::size_t chunk_bytes) {
    const GroupLayout layout(nullptr, size, chunk_bytes);
    return layout.ChannelOffset(size, 0);
  }

  std::size_t chunk_bytes() const { return chunk_bytes_; }
  GroupHeader& header() const { return *reinterpret_cast<GroupHeader*>(base_); }
  RankLine& line(int rank) const {
    return reinterpret_cast<RankLine*>(base_ + sizeof(GroupHeader))[rank];
  }
  std::byte* staging(int rank, std::uint32_t buffer) const {
    const std::size_t index = static_cast<std::size_t>(rank) * kStagingBuffers + buffer;
    return base_ + StagingOffset() + index * chunk_bytes_;
  }
  Channel& channel(int from, int to) const {
    return *reinterpret_cast<Channel*>(base_ + ChannelOffset(from, to));
  }
  std::size_t slot_bytes() const { return ChannelSlotBytes(size_); }
  std::byte* slot(int from, int to, std::uint32_t index) const {
    return base_ + ChannelOffset(from, to) + sizeof(Channel) + index * slot_bytes();
  }

 private:
  std::size_t StagingOffset() const {
    return sizeof(GroupHeader) + static_cast<std::size_t>(size_) * sizeof(RankLine);
  }
  std::size_t ChannelOffset(int from, int to) const {
    const auto ranks = static_cast<std::size_t>(size_);
    return StagingOffset() + ranks * kStagingBuffers * chunk_bytes_ +
           (static_cast<std::size_t>(from) * ranks + static_cast<std::size_t>(to)) *
               (sizeof(Channel) + kChannelSlots * slot_bytes());
  }

  std::byte* base_;
  int size_;
  std::size_t chunk_bytes_;
};

}  // namespace ds::comm
