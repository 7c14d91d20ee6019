#pragma once

// Muon updates the matrices inside a model and AdamW all other parameters, as DeepSpeed combines
// them.
//
// For a matrix of r rows and c columns with gradient g:
//   m = m + (1 - momentum) (g - m)           u = g + momentum (m - g)
//   u = FindOrthogonal(u) * sqrt(max(1, r / c))
//   p -= lr * weight_decay * p + lr * u
// The update of other parameters is in kernels/update_ops.h.
//
// The momentum is sharded like all state, but u must be unsharded. It is gathered buffer by buffer,
// and one rank orthogonalises each matrix. A sum over the ranks (all terms but one are 0) then
// gives every rank the elements that it updates: the same bits at every stage. The buffers exist
// for one slice at a time and count as "other" in the ledger.

#include <string_view>
#include <vector>

#include "runtime/config/optimizer.h"
#include "runtime/optim/elementwise.h"
#include "runtime/optim/groups/parameter_groups.h"

namespace ds::optim {

// Returns whether Muon updates the parameter: it has at least two dimensions, and
// config::IsMuonName is true.
bool IsMuonMatrix(std::string_view name, at::IntArrayRef shape);

// Returns the groups of `inner`, with matrices separated for Muon. The two halves have separate
// rates (MuonConfig::adam_lr): a factor on either would not follow a schedule.
ParameterGrouper WithMuonMatrices(ParameterGrouper inner);

// Returns approximately the nearest orthogonal matrix (singular values between 0.7 and 1.2), by
// five quintic Newton-Schulz iterations: on the matrix itself, or ("gram") on its Gram matrix. The
// latter is cheaper the less square the matrix is. In fp32 on the CPU; elsewhere in fp16 ("gram")
// or bf16.
at::Tensor FindOrthogonal(const at::Tensor& matrix, config::NewtonSchulz method);

class Muon : public Optimizer {
 public:
  Muon(const config::MuonConfig& config, double weight_decay)
      : Optimizer({.beta1 = config.momentum, .weight_decay = weight_decay}),
        config_(config),
        adam_(config.adam, weight_decay) {}

  std::string_view name() const override { return "Muon"; }
  std::span<const std::string_view> state_names(const ParameterGroup& group) const override;
  Reach reach(const ParameterGroup& group) const override {
    return group.muon ? config::ReachOf(config_) : Reach::kElement;
  }
  void Begin(const Update& update, const RankSlices& all) override;
  void ApplyRates(const SliceRates& rates, const OptimizerSlice& slice) override;

 private:
  void ApplyToMatrices(const SliceRates& rates, const OptimizerSlice& slice);
  // Updates the momentum and returns u, over the views.
  at::Tensor UpdateMomentum(const SliceRates& rates, const OptimizerSlice& slice);
  // Returns u orthogonalised, over the views. Collective.
  at::Tensor Orthogonalise(const at::Tensor& views, const OptimizerSlice& slice);
  at::Tensor GatherFull(const at::Tensor& views, const OptimizerSlice& slice);
  at::Tensor SumOverRanks(const at::Tensor& result, const OptimizerSlice& slice);
  // Books an upper bound of the memory that the update of a slice needs in addition to the slice.
  device::LedgerEntry BookBuffers(const OptimizerSlice& slice) const;

  config::MuonConfig config_;
  Elementwise<config::AdamConfig> adam_;  // updates all parameters except matrices
  comm::Communicator* shards_ = nullptr;
  device::MemoryLedger* ledger_ = nullptr;
  std::vector<double> work_;  // assigned to each rank in this update
};

}  // namespace ds::optim
