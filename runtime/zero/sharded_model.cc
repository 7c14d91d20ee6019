#include "runtime/zero/sharded_model.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>

#include "runtime/base/check.h"
#include "runtime/comm/agreement.h"
#include "runtime/zero/backward_entry.h"
#include "runtime/zero/same_model.h"
#include "runtime/zero/shared_memory.h"

namespace ds::zero {
namespace {

Status CheckPlacement(const Context& context, const NamedParameter& parameter) {
  const checkpoint::Placement& placement = parameter.placement;
  if (placement.expert && context.of_experts == nullptr) {
    return InvalidArgumentError("parameter " + parameter.name +
                                " belongs to an expert that only some ranks have, but the mesh's "
                                "expert is 1: all ranks have all experts");
  }
  if (placement.gradient_axes != topology::kGradientAxes) {
    return UnimplementedError("parameter " + parameter.name +
                              " has gradients that add up along other axes than all others'");
  }
  const bool is_of_tensor_ranks =
      !placement.boxes.empty() || placement.copy_axes.contains(topology::Axis::kTensor);
  if (context.mesh.degrees().tensor > 1 && !is_of_tensor_ranks) {
    return InvalidArgumentError(
        "parameter " + parameter.name + " is neither sharded over the mesh's " +
        std::to_string(context.mesh.degrees().tensor) +
        " tensor ranks nor replicated on them: its block does not declare it (DescribePlacement)");
  }
  const std::vector<std::int64_t> local = parameter.tensor.sizes().vec();
  const checkpoint::Shape placed = ShapeOf(placement.global_shape, placement.boxes);
  if (local == placed) return OkStatus();
  return InternalError("parameter " + parameter.name + " has " +
                       std::to_string(parameter.tensor.numel()) +
                       " elements and not the shape of its placement");
}

Status CheckParameter(const Context& context, const NamedParameter& parameter) {
  const at::Tensor& tensor = parameter.tensor;
  DS_RETURN_IF_ERROR(CheckPlacement(context, parameter));
  const bool is_frozen_bytes = tensor.scalar_type() == at::kByte && !tensor.requires_grad();
  if (!at::isFloatingType(tensor.scalar_type()) && !is_frozen_bytes) {
    return InvalidArgumentError(
        "parameter " + parameter.name + " has dtype " +
        std::string(c10::toString(tensor.scalar_type())) +
        "; only floating point parameters can be trained, and bytes frozen");
  }
  if (tensor.device() != context.device) {
    return InvalidArgumentError("parameter " + parameter.name + " is on " + tensor.device().str() +
                                ", the engine on " + context.device.str());
  }
  if (Unit::IsTrained(tensor)) {
    return FailedPreconditionError("parameter " + parameter.name +
                                   " is trained by another engine, which would take its gradients: "
                                   "destroy that one first");
  }
  return OkStatus();
}

Status CheckParameters(const Context& context, const std::vector<ParameterUnit>& units) {
  std::set<const void*> seen;
  for (const ParameterUnit& unit : units) {
    for (const NamedParameter& parameter : unit.parameters) {
      DS_RETURN_IF_ERROR(CheckParameter(context, parameter));
      if (!seen.insert(parameter.tensor.unsafeGetTensorImpl()).second) {
        return InvalidArgumentError(
            "parameter " + parameter.name +
            " belongs to two blocks; give it to the first one and name that "
            "in also_reads of the other");
      }
    }
  }
  const auto shared = FindSharedMemory(units);
  if (!shared) return OkStatus();
  return InvalidArgumentError("parameters " + shared->first + " and " + shared->second +
                              " share memory, and would be two from here on; tie them by using "
                              "the first in both places, and name its block in also_reads of the "
                              "other");
}

// Rank 0's values can be copied only if all ranks take part.
Status CheckSameOrigin(FirstValues mine, comm::Communicator& all) {
  const auto origins = comm::GatherNumber(static_cast<std::int64_t>(mine), all);
  const auto other = std::adjacent_find(origins.begin(), origins.end(), std::not_equal_to<>());
  if (other == origins.end()) return OkStatus();
  const auto rank = other - origins.begin();
  const bool first_has = *other == static_cast<std::int64_t>(FirstValues::kRankZeros);
  return InvalidArgumentError("rank " + std::to_string(first_has ? rank : rank + 1) +
                              " has values for it and rank " +
                              std::to_string(first_has ? rank + 1 : rank) +
                              " has none: a block has values on every rank or on none");
}

std::vector<OwnRange> ListOwnRanges(const Unit& unit) {
  std::vector<OwnRange> ranges;
  for (const auto& bucket : unit.buckets()) {
    const Context& context = bucket->context();
    const FlatParameters& parameters = bucket->parameters();
    const FlatLayout& layout = parameters.layout();
    const FlatRange own = context.sharding.parameters ? layout.shard(context.groups.shards->rank())
                                                      : layout.full_range();
    for (const Piece& piece : layout.FindPieces(own)) {
      ranges.push_back(
          {.name = parameters.parameter(piece.parameter).name,
           .first = piece.parameter_start,
           .values = parameters.full().narrow(0, own.start + piece.range_start, piece.count)});
    }
  }
  return ranges;
}

}  // namespace

StatusOr<std::unique_ptr<ShardedModel>> ShardedModel::Create(
    const Context& context, const std::vector<ParameterUnit>& units, const FillUnit& fill) {
  std::unique_ptr<ShardedModel> model(new ShardedModel(context));
  DS_RETURN_IF_ERROR(
      comm::AgreeOnStatus(CheckParameters(context, units), context.groups.of_stage()));
  DS_RETURN_IF_ERROR(CheckSameModel(units, context.groups.of_stage()));
  for (const ParameterUnit& unit : units) {
    const Status added = model->AddUnit(unit, fill);
    if (!added.ok()) return added.WithContext("building " + unit.name);
  }
  model->residency_.emplace(model->context_, model->units_, HashModel(units));
  return model;
}

// Keeps as many of the first units in memory as the budget allows.
StorageTier ShardedModel::ChooseStorageTier(const ParameterUnit& described) {
  const Tiers& tiers = context_.tiers;
  if (tiers.parameters == StorageTier::kHere) return StorageTier::kHere;
  const auto size = static_cast<std::int64_t>(c10::elementSize(context_.dtypes.parameter));
  std::int64_t bytes = 0;
  for (const NamedParameter& parameter : described.parameters) {
    const bool is_float = at::isFloatingType(parameter.tensor.scalar_type());
    bytes += parameter.tensor.numel() * (is_float ? size : 1) /
             context_.For(parameter.placement).groups.shards->size();
  }
  if (bytes > tiers.resident_parameter_bytes - resident_parameter_bytes_) return tiers.parameters;
  resident_parameter_bytes_ += bytes;
  return tiers.resident_parameters;
}

Status ShardedModel::AddUnit(const ParameterUnit& described, const FillUnit& fill) {
  const int index = static_cast<int>(units_.size());
  units_.push_back(
      std::make_unique<Unit>(context_, pool_, described, ChooseStorageTier(described)));
  for (const auto& bucket : units_.back()->buckets()) {
    std::int64_t& numel = bucket->trainable() ? trainable_numel_ : frozen_numel_;
    const FlatParameters& parameters = bucket->parameters();
    for (int i = 0; i < parameters.layout().size(); ++i) {
      const checkpoint::Placement& placement = parameters.parameter(i).placement;
      if (!context_.IsOfThisStage(placement)) continue;
      const int others = placement.expert ? context_.mesh.degrees().expert : 1;
      numel += checkpoint::ElementCount(placement.global_shape).value() * others;
    }
  }
  const StatusOr<FirstValues> values = fill(index, ListOwnRanges(*units_.back()));
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(values.status(), context_.groups.of_stage()));
  DS_RETURN_IF_ERROR(CheckSameOrigin(*values, context_.groups.of_stage()));
  if (*values == FirstValues::kRankZeros && context_.mesh.degrees().tensor > 1) {
    return UnimplementedError(
        "modules that bring values of their own are not built on tensor ranks");
  }
  for (const auto& bucket : units_.back()->buckets()) {
    if (*values == FirstValues::kRankZeros) bucket->parameters().Broadcast();
    bucket->parameters().KeepShard();
    bucket->parameters().Release();
  }
  return OkStatus();
}

void ShardedModel::FreeBuffers() {
  EvictAll();
  pool_.FreeIdle();
}

std::vector<at::Tensor> ShardedModel::LeaveForward(int index, std::vector<at::Tensor> outputs) {
  if (!CanMarkBackwardEntry(outputs)) return outputs;
  const auto on_reached = [self = std::weak_ptr(self_), mark = residency_->AddMark(index)] {
    const std::shared_ptr<ShardedModel*> model = self.lock();
    TORCH_CHECK(model != nullptr,
                "a backward pass goes through a model whose engine has been destroyed: keep the "
                "engine until the pass has ended");
    (*model)->residency_->EnterBackward(mark, (*model)->gradient_end_);
  };
  return MarkBackwardEntry(std::move(outputs), on_reached);
}

void ShardedModel::BeginForward(UnitRange units) {
  std::vector<int> visits(static_cast<std::size_t>(units.end - units.first));
  std::iota(visits.begin(), visits.end(), units.first);
  residency_->BeginForward(units, visits);
}

void ShardedModel::BeginForward(const std::vector<int>& visits) {
  residency_->BeginForward({0, static_cast<int>(units_.size())}, visits);
}

void ShardedModel::GatherExactly(bool exactly) {
  EvictAll();
  for (const auto& unit : units_) {
    for (const auto& bucket : unit->buckets()) bucket->parameters().GatherExactly(exactly);
  }
}

void ShardedModel::BeginReading() {
  GatherExactly(true);
  BeginForward();
}

void ShardedModel::BeginReading(const std::set<int>& units) {
  GatherExactly(true);
  residency_->Bring(units);
}

void ShardedModel::EndReading() { GatherExactly(false); }

void ShardedModel::EndForward() {
  if (!c10::GradMode::is_enabled()) ReleaseAll();
}

void ShardedModel::DelayGradients(DelayedGradients* delayed) {
  if (delayed != nullptr) delayed->resize(units_.size());
  for (std::size_t i = 0; i < units_.size(); ++i) {
    for (const auto& bucket : units_[i]->buckets()) {
      if (!bucket->trainable()) continue;
      bucket->gradients().DelayInto(delayed != nullptr ? &(*delayed)[i] : nullptr);
    }
  }
}

void ShardedModel::BringGradients(UnitRange units, DelayedGradients* delayed) {
  const c10::NoGradGuard no_grad;
  residency_->BringGradients(units, gradient_end_, [&](int unit) {
    // Each entry is destroyed after its call, to free the tensors it holds.
    for (auto& arrive : (*delayed)[static_cast<std::size_t>(unit)]) std::exchange(arrive, {})();
  });
  delayed->clear();
}

void ShardedModel::AcceptGradients(bool accepts) {
  accepts_gradients_ = accepts;
  for (const auto& unit : units_) unit->AcceptGradients(accepts);
}

Status ShardedModel::CheckNoStrayGradients() const {
  for (const auto& unit : units_) {
    for (const auto& bucket : unit->buckets()) {
      for (int i = 0; i < bucket->parameters().layout().size(); ++i) {
        const NamedParameter& parameter = bucket->parameters().parameter(i);
        if (!parameter.tensor.grad().defined()) continue;
        return FailedPreconditionError(
            "parameter " + parameter.name +
            (bucket->trainable()
                 ? " has a gradient in .grad that has not come from Engine::backward: reset .grad"
                 : " was frozen when the engine was created and has a gradient now, which would "
                   "not be trained on: freeze it again and reset .grad, or create the engine "
                   "after unfreezing it"));
      }
    }
  }
  return OkStatus();
}

void ShardedModel::ScaleGradients(double factor) {
  for (const auto& unit : units_) {
    for (const auto& bucket : unit->buckets()) {
      if (bucket->trainable()) bucket->gradients().set_arrival_factor(factor);
    }
  }
}

}  // namespace ds::zero
