#pragma once

// Sampler: finds the sample at a position of the training stream.
//
// The stream is endless: pass after pass over the data. Position p is sample p mod n, or with
// shuffling element p mod n of a permutation that differs for every pass. It does not depend on the
// world size, so a run can resume on another number of ranks.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ds::data {

// Permutation: a seeded permutation of 0..n-1 with independently computed elements: a Feistel
// network over the next power of four, walked until it lands inside (Black and Rogaway, 2002). It
// needs no memory, so the cost of shuffling does not grow with the number of tokens.
class Permutation {
 public:
  // Requires size >= 1. Equal (size, key) give equal permutations on every machine, in all
  // versions.
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

  // Returns the sample at position `position` >= 0 of the stream. Caches the pass's permutation.
  std::int64_t At(std::int64_t position);

 private:
  std::int64_t samples_;
  Options options_;
  std::int64_t pass_ = -1;  // the pass of permutation_
  std::optional<Permutation> permutation_;
};

// Blend: assigns each position of a training stream to a source, so that every source has its share
// of any stretch of the stream.
//
// Each position is computed independently, with integers: there is no table, and a run can resume
// at any position. Among the first p positions a source has its share of p, with an error below
// two.

class Blend {
 public:
  // Source i gets weights[i] / sum of weights. Requires at least one weight; all must be finite and
  // above 0.
  explicit Blend(std::span<const double> weights);

  // SourceSample: the source at a position; it fills its index-th position there, counted from 0.
  struct SourceSample {
    std::size_t source = 0;
    std::int64_t index = 0;
  };
  // Requires position >= 0.
  SourceSample At(std::int64_t position) const;

  // Returns how many of the first `positions` positions each source fills.
  std::vector<std::int64_t> Count(std::int64_t positions) const;

 private:
  // Branch: a node, which divides its positions between two branches, or a source.
  struct Branch {
    int node = -1;  // -1: this branch is `source`
    std::size_t source = 0;
  };
  struct Node {
    std::uint64_t share = 0;  // of the first branch, in units of 2^-62
    Branch first, second;
  };
  struct Weighed {
    double weight = 0.0;
    std::size_t source = 0;
  };
  Branch Build(std::span<const Weighed> sources);
  void CountIn(const Branch& branch, std::int64_t positions,
               std::vector<std::int64_t>* counts) const;

  std::vector<Node> nodes_;
  Branch root_;
};

}  // namespace ds::data
