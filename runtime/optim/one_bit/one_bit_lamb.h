#pragma once

// 1-bit LAMB (arXiv 2104.06069), as DeepSpeed 0.19.6 computes it after its initialisation step.
//
// Warm-up, updates 1 to freeze_step - 1 (at least one): LAMB without bias correction on the mean
// gradient over the ranks (lamb.h), and per parameter a running mean of its trust ratio
//   r = coeff_beta r + (1 - coeff_beta) ratio          (not where the ratio is 1)
// From then on v is frozen, gradients are not exchanged, and per parameter
//   m = m + (1 - beta1) (g - m), by each rank's own gradient g; then the compressed mean over ranks
//       of all parameters' m as one buffer, each scaled to the same root mean square
//   h = (m - beta1 m_before) / (1 - beta1)                     the gradient that m says there was
//   w = beta2 w + (1 - beta2) h^2                              a variance that goes on; v at first
//   f = max over elements of (sqrt(v) + eps) / (sqrt(w) + eps)
//   p -= lr r f (m / (sqrt(v) + eps) + weight_decay p)
// where f is first mixed with 1 by the decay's share of the update, then clamped to [factor_min,
// factor_max] and to within factor_threshold of the f before.
// The padding of that buffer keeps what compression has put there, and takes part, as in DeepSpeed.
// A parameter whose m is zero at the freeze (DeepSpeed fails there) stays out: its m remains zero.
//
// Unsharded parts only. The errors of the compression are not in checkpoints, as in DeepSpeed.

#include <optional>
#include <string_view>
#include <vector>

#include "runtime/comm/compressed_all_reduce.h"
#include "runtime/config/optimizer.h"
#include "runtime/optim/kernels/direction.h"
#include "runtime/optim/optimizer.h"

namespace ds::optim {

class OneBitLamb : public Optimizer {
 public:
  OneBitLamb(const config::OneBitLambConfig& config, double weight_decay)
      : Optimizer({.beta1 = config.beta1, .weight_decay = weight_decay}), config_(config) {}

  std::string_view name() const override { return "OneBitLamb"; }
  std::span<const std::string_view> state_names(const ParameterGroup& group) const override;
  bool WantsOwnGradients(std::int64_t step) const override;
  void Begin(const Update& update, const RankParts& all) override;
  void ApplyRates(const PartRates& rates, const Part& part) override;
  nlohmann::json State() const override;
  Status LoadState(const nlohmann::json& state, std::int64_t parameter_count) override;
  void StateWasLoaded() override;

 private:
  // The trust of one parameter.
  struct Trust {
    double ratio = 0.0;    // r
    double factor = 1.0;   // f of the update before
    double scaling = 0.0;  // of m in the compression; 0: stays out, or not known yet
  };

  Trust& TrustOf(const Segment& segment) {
    return trust_.at(static_cast<std::size_t>(segment.parameter));
  }
  DirectionCoefficients MakeCoefficients(const PartRates& rates) const;
  void WarmUp(const PartRates& rates, const Part& part);
  void FindScalings(const RankParts& all);
  at::Tensor WithPadding(std::vector<at::Tensor> momenta);
  void AverageMomenta(const RankParts& all);
  void StepFrozen(const PartRates& rates, const Part& part);
  // f of one parameter, given its views and how much of its direction is not weight decay.
  double UpdateFactor(const Part& cut, double share, Trust* trust) const;

  config::OneBitLambConfig config_;
  std::vector<Trust> trust_;                // by parameter
  std::vector<at::Tensor> momenta_before_;  // by parameter, during a frozen update
  device::LedgerEntry momenta_entry_;
  std::optional<comm::CompressedAllReduce> compressed_;  // from the first frozen update on
  at::Tensor padding_;                                   // of the buffer of all momenta
};

}  // namespace ds::optim
