#pragma once

// ZeroOneAdam implements 0/1 Adam (arXiv 2202.06009), as DeepSpeed 0.19.6 computes it after its
// initialisation step.
//
// ZeroOneIntervals determines the kind of each update:
//   refresh   with the mean gradient g over the ranks: m = m + (1 - beta1) (g - m),
//             v = beta2 v + (1 - beta2) g^2, p -= lr d with d = m / (sqrt(v) + eps) + decay p
//   one bit   with the compressed mean of the ranks' gradients: m likewise, v unchanged, p -= lr d
//   local     with the rank's own gradient: m likewise, p -= lr d, and u = u - lr d
//   exchange  the same; then p is reset to its value after the last exchange, u becomes the
//             compressed mean of u (sqrt(v) + eps), m = -u / (sum of the rates since then),
//             p += u / (sqrt(v) + eps), u = 0
// As in 1-bit Adam, m is kept at zero where v is zero. Between exchanges the ranks' parameters
// differ. A checkpoint written then holds elements of all ranks. After it is loaded, u and the
// compression errors begin at zero.
//
// On one rank compression has no effect. (DeepSpeed drops the gradients of one-bit updates there.)
// Unsharded slices only.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/config/optimizer.h"
#include "runtime/optim/kernels/direction.h"
#include "runtime/optim/one_bit/one_bit_average.h"
#include "runtime/optim/optimizer.h"

namespace ds::optim {

enum class ZeroOneUpdate {
  kRefresh,   // full gradients, which update the variance
  kOneBit,    // compressed gradients; the variance is unchanged
  kLocal,     // the rank's own gradient; the ranks' parameters diverge
  kExchange,  // the same; then the ranks average their updates since the last exchange
};

// ZeroOneIntervals computes, from an update's number, whether 0/1 Adam refreshes its variance and
// whether its ranks exchange their local updates.
//
// Update t counts as step t + 1, because DeepSpeed's initialisation is a step. Until the variance
// is frozen, steps divisible by an interval refresh it. The interval begins at 1 and doubles after
// every `var_update_scaler` refreshes. The variance is frozen after the first step above
// `var_freeze_step`. From then on steps divisible by another interval exchange; it begins at 1 and
// doubles after every `local_step_scaler` steps, up to `local_step_clipper`.
class ZeroOneIntervals {
 public:
  explicit ZeroOneIntervals(const config::ZeroOneAdamConfig& config) : config_(config) {}

  // Looks up update number `update`, from 1. Cheap if called in order.
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

class ZeroOneAdam : public Optimizer {
 public:
  ZeroOneAdam(const config::ZeroOneAdamConfig& config, double weight_decay)
      : Optimizer({.beta1 = config.beta1, .weight_decay = weight_decay}),
        config_(config),
        intervals_(config) {}

  std::string_view name() const override { return "ZeroOneAdam"; }
  std::span<const std::string_view> state_names(const ParameterGroup& group) const override;
  bool NeedsLocalGradients(std::int64_t step) const override;
  void Begin(const Update& update, const RankSlices& all) override;
  void ApplyRates(const SliceRates& rates, const OptimizerSlice& slice) override;
  bool has_local_moves() const override { return has_local_moves_; }
  void StateWasLoaded() override;

 private:
  DirectionCoefficients MakeCoefficients(const SliceRates& rates) const;
  void FollowCompressedGradients(const Update& update, const RankSlices& all);
  // Updates m and u. Updates p too, or, if an exchange follows, resets it to the last exchange.
  void StepLocally(const Update& update, const RankSlices& all, bool exchange);
  void Exchange(const RankSlices& all);

  config::ZeroOneAdamConfig config_;
  ZeroOneIntervals intervals_;
  OneBitAverage average_;
  std::vector<at::Tensor> moved_;  // u of each slice, from the first local update on
  device::LedgerEntry moved_entry_;
  std::vector<double> rates_;     // sum since the last exchange, by slice
  bool has_local_moves_ = false;  // since then, with more than one rank
};

}  // namespace ds::optim
