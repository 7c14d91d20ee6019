#pragma once

// ZeroOneIntervals: the updates at which 0/1 Adam refreshes its variance, and at which its ranks
// exchange what they have done, as a function of the update's number.

#include <cstdint>

#include "runtime/config/optimizer.h"

namespace ds::optim {

enum class ZeroOneUpdate {
  kRefresh,   // whole gradients, which the variance follows
  kOneBit,    // compressed gradients; the variance rests
  kLocal,     // the rank's own gradient; parameters of ranks part
  kExchange,  // the same, then the ranks agree on what all of them have done since the last time
};

// Update t counts as step t + 1, for DeepSpeed's initialisation is a step. While the variance is
// not frozen, steps divisible by an interval refresh it; the interval begins at 1 and doubles after
// every `var_update_scaler` refreshes. It is frozen after the first step above `var_freeze_step`.
// From then on steps divisible by another interval exchange; it begins at 1 and doubles after every
// `local_step_scaler` steps, up to `local_step_clipper`.
class ZeroOneIntervals {
 public:
  explicit ZeroOneIntervals(const config::ZeroOneAdamConfig& config) : config_(config) {}

  // Looks up update number `update`, from 1. Cheap when asked in order.
  ZeroOneUpdate At(std::int64_t update) const;

 private:
  struct Position {
    std::int64_t step = 2;
    bool frozen = false;
    std::int64_t variance_interval = 1;
    std::int64_t refreshes = 0;  // since it doubled
    std::int64_t local_interval = 1;
    std::int64_t local_steps = 0;  // since it doubled

    ZeroOneUpdate kind() const;
    void Advance(const config::ZeroOneAdamConfig& config);
  };

  config::ZeroOneAdamConfig config_;
  mutable Position position_;
};

}  // namespace ds::optim
