#pragma once

// PairTable maps a pair of tokens to its merge: the rank and the resulting token. It is a flat hash
// table, as merging looks up every pair of neighbours.
//
// Thread-safe: const functions may be called concurrently.

#include <cstdint>
#include <vector>

namespace ds::tokenizer {

class PairTable {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  struct Merge {
    std::uint32_t rank = kNone;  // kNone: the two do not merge
    std::uint32_t id = 0;        // the resulting token
  };

  // Allocates space for `count` pairs.
  explicit PairTable(std::size_t count = 0);

  // Adds a merge; a later merge of the same pair replaces the earlier one. Requires free space.
  void Add(std::uint32_t left, std::uint32_t right, Merge merge);

  Merge Find(std::uint32_t left, std::uint32_t right) const {
    const std::uint64_t key = KeyOf(left, right);
    for (std::size_t place = PlaceOf(key);; place = (place + 1) & mask_) {
      const Slot& slot = slots_[place];
      if (slot.key == key) return slot.merge;
      if (slot.merge.rank == kNone) return {};
    }
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    Merge merge;
  };
  static std::uint64_t KeyOf(std::uint32_t left, std::uint32_t right) {
    return (std::uint64_t{left} << 32) | right;
  }
  std::size_t PlaceOf(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ULL) >> 32) & mask_;
  }

  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
};

}  // namespace ds::tokenizer
