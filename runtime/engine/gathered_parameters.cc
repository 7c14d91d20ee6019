#include "runtime/engine/gathered_parameters.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "runtime/checkpoint/tensor_source.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/engine_components.h"
#include "runtime/engine/make_mesh.h"

namespace ds::engine {

struct ChosenParameter {
  at::Tensor tensor;
  const zero::Context* context = nullptr;  // of its bucket: an expert's is of other ranks
};

struct ChosenParameters {
  std::map<std::string, ChosenParameter> parameters;  // by name
  std::set<int> units;
  bool trained = false;  // at least one is
};

namespace {

StatusOr<ChosenParameters> FindChosen(const zero::ShardedModel& sharded,
                                      const std::vector<std::string>& names) {
  std::set<std::string> missing(names.begin(), names.end());
  ChosenParameters chosen;
  for (std::size_t unit = 0; unit < sharded.units().size(); ++unit) {
    for (const auto& bucket : sharded.units()[unit]->buckets()) {
      for (int i = 0; i < bucket->parameters().layout().size(); ++i) {
        const zero::NamedParameter& parameter = bucket->parameters().parameter(i);
        if (missing.erase(parameter.name) == 0) continue;
        chosen.parameters.emplace(parameter.name,
                                  ChosenParameter{parameter.tensor, &bucket->context()});
        chosen.units.insert(static_cast<int>(unit));
        chosen.trained = chosen.trained || bucket->trainable();
      }
    }
  }
  if (missing.empty()) return chosen;
  return NotFoundError("the model has no parameter " + *missing.begin());
}

// Writes changed values only: a master weight is more precise than an unchanged 16-bit value.
Status KeepValues(const at::Tensor& values, checkpoint::TensorSource& kept) {
  DS_ASSIGN_OR_RETURN(const at::Tensor before, checkpoint::ReadAll(kept));
  const at::Tensor after = values.cpu();
  const at::Tensor is_new = before.to(after.scalar_type()).ne(after);
  const at::Tensor merged = at::where(is_new, after.to(before.scalar_type()), before);
  return checkpoint::WriteAll(merged, kept);
}

// Writes the shards that this rank holds, on any tier.
Status KeepShards(const zero::ShardedOptimizer& optimizer, const ChosenParameters& chosen) {
  std::vector<checkpoint::TensorShard> shards;
  optimizer.AddShards(&shards);
  for (const checkpoint::TensorShard& shard : shards) {
    const auto found = chosen.parameters.find(shard.name);
    if (found == chosen.parameters.end()) continue;
    const at::Tensor flat = found->second.tensor.reshape({-1});
    DS_RETURN_IF_ERROR(
        KeepValues(flat.narrow(0, shard.flat_start, shard.source->count()), *shard.source));
  }
  return OkStatus();
}

}  // namespace

struct GatheredParameters::Gathered {
  EngineComponents& engine;
  std::optional<int> modifier_rank;
  ChosenParameters chosen;
  std::map<std::string, at::Tensor> before;  // if unsharded

  // Returns which of the ranks with the parameter writes it: of an expert's, the one that has the
  // place among them that the modifier rank has among those with its own experts.
  int FindWriter(const zero::Context& context) const;
  // Makes the values those of the modifier rank, or of before.
  void KeepOrRestore(bool keeps);
};

int GatheredParameters::Gathered::FindWriter(const zero::Context& context) const {
  if (!context.is_of_experts) return *modifier_rank;
  const std::vector<int> holders =
      context.mesh.SameExpertsOf(*modifier_rank, topology::kGradientAxes);
  return static_cast<int>(std::find(holders.begin(), holders.end(), *modifier_rank) -
                          holders.begin());
}

void GatheredParameters::Gathered::KeepOrRestore(bool keeps) {
  for (const auto& [name, parameter] : chosen.parameters) {
    if (keeps) {
      parameter.context->groups.gradients->Broadcast(parameter.tensor,
                                                     FindWriter(*parameter.context), name);
    } else if (const auto old = before.find(name);
               old != before.end() && !at::equal(parameter.tensor, old->second)) {
      // Otherwise a graph that has saved the parameter would find it changed.
      parameter.tensor.copy_(old->second);
    }
  }
}

GatheredParameters::GatheredParameters(std::unique_ptr<Gathered> gathered)
    : gathered_(std::move(gathered)) {}
GatheredParameters::~GatheredParameters() = default;

StatusOr<std::unique_ptr<GatheredParameters>> GatheredParameters::Open(
    Engine& engine, const std::vector<std::string>& names, std::optional<int> modifier_rank) {
  EngineComponents& components = *engine.components_;
  TrainedModel& model = components.model;
  zero::ShardedModel& sharded = *model.sharded;
  if (modifier_rank &&
      (*modifier_rank < 0 || *modifier_rank >= sharded.context().groups.gradients->size())) {
    return InvalidArgumentError("there is no rank " + std::to_string(*modifier_rank) +
                                " to modify parameters on");
  }
  DS_RETURN_IF_ERROR(CheckLayersAreUnsplit(components.topology.mesh, "GatheredParameters"));
  StatusOr<ChosenParameters> found = FindChosen(sharded, names);
  if (components.topology.mesh.degrees().expert > 1) {  // else all ranks find the same
    DS_RETURN_IF_ERROR(comm::AgreeOnStatus(found.status(), *components.topology.world));
  }
  DS_ASSIGN_OR_RETURN(ChosenParameters chosen, std::move(found));
  const c10::NoGradGuard no_grad;
  DS_RETURN_IF_ERROR(model.ReloadStates());
  if (modifier_rank && chosen.trained) DS_RETURN_IF_ERROR(model.CheckWeightsAreEqual());
  if (modifier_rank) model.optimizer->Settle();  // a late update would overwrite the written values
  sharded.BeginReading(chosen.units);
  std::map<std::string, at::Tensor> before;
  for (auto& [name, parameter] : chosen.parameters) {
    // An alias of a released one would never get memory.
    parameter.tensor = parameter.tensor.detach();
    if (!parameter.context->sharding.parameters) before.emplace(name, parameter.tensor.clone());
  }
  model.gathered = true;
  return std::unique_ptr<GatheredParameters>(new GatheredParameters(std::make_unique<Gathered>(
      Gathered{components, modifier_rank, std::move(chosen), std::move(before)})));
}

Status GatheredParameters::Close(Status body) {
  const std::unique_ptr<Gathered> gathered = std::move(gathered_);
  if (gathered == nullptr) return FailedPreconditionError("the parameters are closed already");
  TrainedModel& model = gathered->engine.model;
  comm::Communicator& world = *gathered->engine.topology.world;
  model.gathered = false;
  const c10::NoGradGuard no_grad;
  const Status status = comm::AgreeOnStatus(std::move(body), world);
  const bool keeps = status.ok() && gathered->modifier_rank.has_value();
  gathered->KeepOrRestore(keeps);
  const Status kept =
      keeps ? comm::AgreeOnStatus(KeepShards(*model.optimizer, gathered->chosen), world) : status;
  model.sharded->EndReading();
  if (keeps && kept.ok()) model.optimizer->PublishWeights();
  return kept;
}

Status WithGatheredParameters(Engine& engine, const std::vector<std::string>& names,
                              std::optional<int> modifier_rank,
                              const std::function<Status()>& body) {
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<GatheredParameters> gathered,
                      GatheredParameters::Open(engine, names, modifier_rank));
  const c10::NoGradGuard no_grad;
  Status status;
  try {
    status = body();
  } catch (const std::exception& error) {  // other ranks wait for this one's status
    status = InternalError(error.what());
  }
  return gathered->Close(std::move(status));
}

}  // namespace ds::engine
