#pragma once

// Optimizer: how parameters follow from gradients. One object steps all of a model, one flat part
// after the other; the tensors that it keeps per parameter lie with the parts.
//
//   optimizer->Begin(update, all);
//   for (const Part& part : parts) optimizer->Apply(update, part);
//
// Every element is computed alike wherever the views are cut, so sharding does not change a bit.
// Parts on the CPU are updated by the CPU's kernels, parts on a GPU by CUDA kernels
// (kernels/flat_update.h). Threads: one thread at a time.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/rank_groups.h"
#include "runtime/config/optimizer.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/optim/kernels/part.h"
#include "runtime/plan/schedule/lr_schedule.h"

namespace ds::optim {

// The numbers of one update.
struct Update {
  double lr = 0.0;
  double gradient_scale = 1.0;       // gradients are multiplied by it: the clip factor
  std::int64_t step = 1;             // this update's number, from 1
  std::optional<double> beta1 = {};  // in place of the configured one (SGD and Muon: momentum),
                                     // where a schedule cycles it
  // The values of the parameter groups that name one of them, in place of lr and beta1.
  std::vector<ScheduledValues> groups = {};
  // Stands, on the parts' device, in place of gradient_scale, which the host does not know yet
  // (DecideUpdate). Undefined: it does. Requires takes_decision.
  at::Tensor decision = {};
};

using VisitPart = std::function<void(const Part& part)>;

// All parts of one rank, in the model's order, the same groups on every rank.
struct RankParts {
  std::vector<Part> parts;  // for an optimizer of Reach::kModel
  // Brings them for the others, one after the other, each for as long as its visit: with no narrow
  // copy, and with parameters to read.
  std::function<void(const VisitPart& visit)> for_each = {};
  std::int64_t parameter_count = 0;  // trainable parameters of the model
  comm::RankGroups groups;
  device::MemoryLedger* ledger = nullptr;
};

using config::Reach;

// Books bytes that lie where the parts do, for as long as the result lives.
device::LedgerEntry Book(const RankParts& all, device::MemoryUse use, std::int64_t bytes);

class Optimizer {
 public:
  // `configured`: beta1 and weight decay, where no schedule and no parameter group changes them.
  explicit Optimizer(const PartRates& configured) : configured_(configured) {}
  virtual ~Optimizer() = default;

  // The owner of the state in checkpoints: one optimizer does not go on from another's.
  virtual std::string_view name() const = 0;
  // The fp32 tensors that it keeps per parameter, zero at first: `<parameter>/<state name>` in
  // checkpoints.
  virtual std::span<const std::string_view> state_names(const ParameterGroup& group) const = 0;

  // Tells whether update `step` takes each rank's own gradients in place of their mean over the
  // ranks: optimizers that exchange something smaller. They step unsharded parts.
  virtual bool WantsOwnGradients(std::int64_t step) const;

  // Tells whether Update::decision may stand in an update: nothing but each element's own new value
  // depends on the gradients' scale, and an update without effect leaves nothing behind.
  virtual bool takes_decision() const { return false; }

  // Alike for all groups where it is kModel.
  virtual Reach reach(const ParameterGroup& group) const;

  // Finds out what must be known of all parts before the first is updated. Collective; nothing for
  // most optimizers.
  virtual void Begin(const Update& update, const RankParts& all);
  void Apply(const Update& update, const Part& part) { ApplyRates(MakeRates(update, part), part); }
  virtual void ApplyRates(const PartRates& rates, const Part& part) = 0;

  // Its knowledge beside the tensors, alike on all ranks: goes into checkpoints. Null if nothing.
  virtual nlohmann::json State() const;
  virtual Status LoadState(const nlohmann::json& state, std::int64_t parameter_count);
  // Tells whether updates with own gradients have left each rank with parameters of its own, until
  // an update to come makes one of what all of them have done.
  virtual bool has_local_moves() const { return false; }
  // Parameters and state have been written from outside: what was kept between updates is void.
  virtual void StateWasLoaded() {}

 protected:
  PartRates MakeRates(const Update& update, const Part& part) const;

 private:
  PartRates configured_;
};

}  // namespace ds::optim
