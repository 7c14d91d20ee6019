#pragma once

// Sampler: finds the sample that stands at a place of the training stream.
//
// The stream is endless: pass after pass over the data. Place p is sample p mod n, or with
// shuffling element p mod n of a permutation of its own for every pass. It does not depend on the
// world size, so that a run may continue on another number of ranks.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

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

// Blend: which source each place of a training stream is filled from, so that every source has its
// share of any stretch of the stream.
//
// A place is found on its own, by integers: there is no table, and a run goes on anywhere. Of the
// first p places a source has its share of p, give or take less than two.

class Blend {
 public:
  // Source i gets weights[i] of their sum. Requires one weight at least, all finite and above 0.
  explicit Blend(std::span<const double> weights);

  // It is the turn of `source`, which fills its index-th place, from 0 on.
  struct Turn {
    std::size_t source = 0;
    std::int64_t index = 0;
  };
  // Requires place >= 0.
  Turn At(std::int64_t place) const;

  // Counts how many of the first `places` each source fills.
  std::vector<std::int64_t> Count(std::int64_t places) const;

 private:
  // A node parts its places between two: those of more than one source, or a source.
  struct Branch {
    int node = -1;  // -1: it is `source`
    std::size_t source = 0;
  };
  struct Node {
    std::uint64_t share = 0;  // of the first branch, in parts of 2^62
    Branch first, second;
  };
  struct Weighed {
    double weight = 0.0;
    std::size_t source = 0;
  };
  Branch Build(std::span<const Weighed> sources);
  void CountIn(const Branch& branch, std::int64_t places, std::vector<std::int64_t>* counts) const;

  std::vector<Node> nodes_;
  Branch root_;
};

}  // namespace ds::data
