#pragma once

// Muon for the matrices inside a model, AdamW for everything else, as DeepSpeed combines them.
//
// For a matrix of r rows and c columns with gradient g:
//   m = m + (1 - momentum) (g - m)           u = g + momentum (m - g)
//   u = FindOrthogonal(u) * sqrt(max(1, r / c))
//   p -= lr * weight_decay * p + lr * u
// The update of the rest is in kernels/update_ops.h.
//
// The momentum is sharded as everything else is; u must be whole. It is gathered buffer by buffer,
// each matrix is orthogonalised by one rank, and a sum over the ranks (all but one of whose terms
// are 0) brings every rank what it updates: the same bits at every stage. These buffers are there
// for one part at a time and in the ledger as "other".

#include <string_view>
#include <vector>

#include "runtime/config/optimizer.h"
#include "runtime/optim/elementwise.h"
#include "runtime/optim/groups/parameter_groups.h"

namespace ds::optim {

// Tells whether Muon updates the parameter: it has at least two dimensions, and config::IsMuonName.
bool IsMuonMatrix(std::string_view name, at::IntArrayRef shape);

// `inner`, with matrices set apart for Muon. The two halves have rates of their own
// (MuonConfig::adam_lr), which a factor of either would not follow through a schedule.
ParameterGrouper WithMuonMatrices(ParameterGrouper inner);

// The nearest orthogonal matrix, about (singular values end between 0.7 and 1.2), by five quintic
// Newton-Schulz iterations: on the matrix itself, or ("gram") on its Gram matrix, which is less
// work the less square it is. In fp32 on the CPU, elsewhere in fp16 ("gram") or bf16.
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
  void Begin(const Update& update, const RankParts& all) override;
  void ApplyRates(const PartRates& rates, const Part& part) override;

 private:
  void ApplyToMatrices(const PartRates& rates, const Part& part);
  // Updates the momentum and returns u, over the views.
  at::Tensor UpdateMomentum(const PartRates& rates, const Part& part);
  // u orthogonalised, over the views. Collective.
  at::Tensor Orthogonalise(const at::Tensor& views, const Part& part);
  at::Tensor GatherWhole(const at::Tensor& views, const Part& part);
  at::Tensor SumOverRanks(const at::Tensor& result, const Part& part);
  // Books what the update of a part takes beside the part itself, at most.
  device::LedgerEntry BookBuffers(const Part& part) const;

  config::MuonConfig config_;
  Elementwise<config::AdamConfig> adam_;  // updates everything that is no matrix
  comm::Communicator* shards_ = nullptr;
  device::MemoryLedger* ledger_ = nullptr;
  std::vector<double> work_;  // given to each rank in this update
};

}  // namespace ds::optim
