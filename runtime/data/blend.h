#pragma once

// Blend: which source each place of a training stream is filled from, so that every source has its
// share of any stretch of the stream.
//
// A place is found on its own, by integers: there is no table, and a run goes on anywhere. Of the
// first p places a source has its share of p, give or take less than two.

#include <cstdint>
#include <span>
#include <vector>

namespace ds::data {

class Blend {
 public:
  // Source i gets weights[i] of their sum. Requires one weight at least, all finite and above 0.
  explicit Blend(std::span<const double> weights);

  // The index-th of the places that `source` fills, from 0 on.
  struct Place {
    std::size_t source = 0;
    std::int64_t index = 0;
  };
  // Requires place >= 0.
  Place At(std::int64_t place) const;

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
