#pragma once

// Optimizer updates parameters from gradients. One object updates a full model, one flat slice
// after the other. The tensors that it keeps per parameter are stored with the slices.
//
//   optimizer->Begin(update, all);
//   for (const OptimizerSlice& slice : slices) optimizer->Apply(update, slice);
//
// The result for an element does not depend on how the views are split, so sharding does not change
// a bit. CPU kernels update slices on the CPU, CUDA kernels slices on a GPU
// (kernels/flat_update.h). Not thread-safe.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/rank_groups.h"
#include "runtime/config/optimizer.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/optim/kernels/optimizer_slice.h"
#include "runtime/plan/schedule/lr_schedule.h"

namespace ds::optim {

// The parameters of one update.
struct Update {
  double lr = 0.0;
  double gradient_scale = 1.0;       // the gradients' factor: the clip factor
  std::int64_t step = 1;             // this update's number, from 1
  std::optional<double> beta1 = {};  // replaces the configured one (SGD, Muon: momentum)
  // The values of the parameter groups that name one of them; they replace lr and beta1.
  std::vector<ScheduledValues> groups = {};
  // On the slices' device, replaces gradient_scale, which the host does not know yet
  // (DecideUpdate). Undefined: gradient_scale applies. Requires takes_decision.
  at::Tensor decision = {};
};

using VisitSlice = std::function<void(const OptimizerSlice& slice)>;

// All slices of one rank, in the model's order, with the same groups on every rank.
struct RankSlices {
  std::vector<OptimizerSlice> slices;  // for an optimizer of Reach::kModel
  // Visits the slices one after the other, for optimizers with another reach. A slice is valid
  // during its visit only. It has no low-precision copy, and its parameters may only be read.
  std::function<void(const VisitSlice& visit)> for_each = {};
  std::int64_t parameter_count = 0;  // trainable parameters of the model
  comm::RankGroups groups;
  device::MemoryLedger* ledger = nullptr;
};

using config::Reach;

// Books bytes on the slices' device for the lifetime of the result.
device::LedgerEntry Book(const RankSlices& all, device::MemoryUse use, std::int64_t bytes);

class Optimizer {
 public:
  // `configured` has the beta1 and weight decay that schedules and parameter groups may override.
  explicit Optimizer(const SliceRates& configured) : configured_(configured) {}
  virtual ~Optimizer() = default;

  // Identifies the state in checkpoints: an optimizer does not load another's state.
  virtual std::string_view name() const = 0;
  // The names of the fp32 tensors per parameter, initially zero: `<parameter>/<state name>` in
  // checkpoints.
  virtual std::span<const std::string_view> state_names(const ParameterGroup& group) const = 0;

  // Returns whether update `step` takes each rank's own gradients instead of their mean over the
  // ranks, because the optimizer exchanges compressed data itself. Such optimizers update unsharded
  // slices.
  virtual bool NeedsLocalGradients(std::int64_t step) const;

  // Returns whether Update::decision is supported: the gradients' scale affects only each element's
  // own new value, and a skipped update leaves no trace.
  virtual bool takes_decision() const { return false; }

  // The same for all groups if it is kModel.
  virtual Reach reach(const ParameterGroup& group) const;

  // Computes values that depend on all slices, before the first one is updated. Collective; does
  // nothing for most optimizers.
  virtual void Begin(const Update& update, const RankSlices& all);
  void Apply(const Update& update, const OptimizerSlice& slice) {
    ApplyRates(MakeRates(update, slice), slice);
  }
  virtual void ApplyRates(const SliceRates& rates, const OptimizerSlice& slice) = 0;

  // The state in addition to the tensors, for checkpoints; the same on all ranks. Null if empty.
  virtual nlohmann::json State() const;
  virtual Status LoadState(const nlohmann::json& state, std::int64_t parameter_count);
  // Returns whether the ranks' parameters differ after updates with their own gradients. A later
  // update makes them equal again.
  virtual bool has_local_moves() const { return false; }
  // Called after parameters and state were written from outside; drops values kept between updates.
  virtual void StateWasLoaded() {}

 protected:
  SliceRates MakeRates(const Update& update, const OptimizerSlice& slice) const;

 private:
  SliceRates configured_;
};

// Creates the optimizer of a ds_config.
std::unique_ptr<Optimizer> MakeOptimizer(const config::OptimizerConfig& config);

}  // namespace ds::optim
