#pragma once

// Which sample stands at which place of the training stream.
//
// The stream is endless: pass after pass over the data. Place p is sample p mod n, or with
// shuffling element p mod n of a permutation of its own for every pass. It does not depend on the
// world size, so that a run may continue on another number of ranks.

#include <cstdint>
#include <optional>

#include "runtime/data/permutation.h"

namespace ds::data {

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
