#pragma once

// Sampler: finds the sample that stands at a place of the training stream.
//
// The stream is endless: pass after pass over the data. Place p is sample p mod n, or with
// shuffling element p mod n of a permutation of its own for every pass. It does not depend on the
// world size, so that a run may continue on another number of ranks.

#include <array>
#include <cstdint>
#include <optional>

namespace ds::data {

// A seeded permutation of 0..n-1 whose every element is computed on its own: a Feistel network over
// the next power of four, walked until it lands inside (Black and Rogaway, 2002). It needs no
// memory, so shuffling a trillion tokens costs what shuffling ten does.
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

class Sampler {
 public:
  struct Options {
    bool shuffle = true;
    std::uint64_t seed = 0;
  };

  // Requires samples >= 1.
  Sampler(std::int64_t samples, Options options) : samples_(samples), options_(options) {}

  std::int64_t samples() const { return samples_; }
  const Options& options() const { return options_; }

  // The sample at place `place` >= 0 of the stream. Remembers the pass's permutation.
  std::int64_t At(std::int64_t place);

 private:
  std::int64_t samples_;
  Options options_;
  std::int64_t pass_ = -1;  // that permutation_ is for
  std::optional<Permutation> permutation_;
};

}  // namespace ds::data
