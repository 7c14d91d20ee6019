#pragma once

// A seeded permutation of 0..n-1 whose every element is computed on its own: a Feistel network over
// the next power of four, walked until it lands inside (Black and Rogaway, 2002). It needs no
// memory, so shuffling a trillion tokens costs what shuffling ten does.

#include <array>
#include <cstdint>

namespace ds::data {

class Permutation {
 public:
  // Requires size >= 1. Equal (size, key) give equal permutations on every machine, for ever.
  Permutation(std::int64_t size, std::uint64_t key);

  // Requires 0 <= index < size.
  std::int64_t At(std::int64_t index) const;

 private:
  std::uint64_t Encrypt(std::uint64_t value) const;

  std::uint64_t size_;
  int half_bits_;  // the network's domain is 2^(2 * half_bits_) >= size
  std::array<std::uint64_t, 6> round_keys_;
};

}  // namespace ds::data
