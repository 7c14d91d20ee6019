#include "runtime/engine/tensor_access.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/checkpoint/tensor_source.h"
#include "runtime/comm/agreement.h"
#include "runtime/engine/engine_components.h"
#include "runtime/engine/make_mesh.h"
#include "runtime/engine/step_update.h"

namespace ds::engine {

// The ranges of one tensor that this rank holds, in order.
struct TensorAccess::HeldTensor {
  struct HeldRange {
    std::int64_t start = 0;  // in the flattened tensor
    std::shared_ptr<checkpoint::TensorSource> source;
  };

  std::vector<std::int64_t> shape;
  const zero::Context* context = nullptr;  // of its bucket: an expert's is of other ranks
  std::vector<HeldRange> ranges;
  bool sharded = false;  // the ranks' ranges form the tensor; otherwise each rank has all of it
  double scale = 1.0;    // stored values are the user's times this
  bool writable = true;

  std::int64_t numel() const {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  }
  // Adds the optimizer's shards with this name.
  void AddShards(const zero::ShardedOptimizer& optimizer, const std::string& name) {
    std::vector<checkpoint::TensorShard> shards;
    optimizer.AddShards(&shards);
    for (const checkpoint::TensorShard& shard : shards) {
      if (shard.name == name) ranges.push_back({shard.flat_start, shard.source});
    }
  }
  // ReadInto and Write fail on drive errors.
  Status ReadInto(const at::Tensor& flat) const {
    for (const HeldRange& range : ranges) {
      DS_ASSIGN_OR_RETURN(const at::Tensor values, checkpoint::ReadAll(*range.source));
      flat.narrow(0, range.start, range.source->count()).copy_(values);
    }
    return OkStatus();
  }
  // Writes values_of(range), in the user's scale, to each range.
  template <typename ValuesOf>
  Status Write(ValuesOf values_of) const {
    for (const HeldRange& range : ranges) {
      const at::Tensor values = values_of(range).to(at::kFloat).mul(scale);
      DS_RETURN_IF_ERROR(checkpoint::WriteAll(values, *range.source));
    }
    return OkStatus();
  }

  std::int64_t held() const {
    std::int64_t count = 0;
    for (const HeldRange& range : ranges) count += range.source->count();
    return count;
  }
};

namespace {

struct ParameterIndex {
  zero::Bucket* bucket = nullptr;
  int index = 0;
};

StatusOr<ParameterIndex> FindParameter(const zero::ShardedModel& model, const std::string& name) {
  for (const auto& unit : model.units()) {
    for (const auto& bucket : unit->buckets()) {
      for (int i = 0; i < bucket->parameters().layout().size(); ++i) {
        if (bucket->parameters().parameter(i).name == name) return ParameterIndex{bucket.get(), i};
      }
    }
  }
  return NotFoundError("the model has no parameter " + name);
}

}  // namespace

bool TensorAccess::HasGradients() const {
  const StepContext& step = engine_.components_->step;
  return step.state.current.CountStarted() > 0 && step.IsUpdateDue();
}

StatusOr<TensorAccess::HeldTensor> TensorAccess::Find(const Wanted& wanted) {
  TrainedModel& model = engine_.components_->model;
  DS_RETURN_IF_ERROR(CheckLayersAreUnsplit(engine_.components_->topology.mesh, "TensorAccess"));
  DS_RETURN_IF_ERROR(model.ReloadStates());
  DS_ASSIGN_OR_RETURN(const ParameterIndex found, FindParameter(*model.sharded, wanted.name));
  zero::Bucket& bucket = *found.bucket;
  const zero::Context& context = bucket.context();
  HeldTensor result{
      .shape = bucket.parameters().parameter(found.index).tensor.sizes().vec(),
      .context = &context,
      .sharded = bucket.trainable() ? context.sharding.optimizer : context.sharding.parameters,
      .writable = bucket.trainable()};
  if (!bucket.trainable() && wanted.kind != Kind::kWeight) {
    return InvalidArgumentError(wanted.name + " is frozen: it has a weight only");
  }
  if (wanted.kind == Kind::kGradient) {
    StepUpdate update(*engine_.components_);
    DS_RETURN_IF_ERROR(update.ReduceGradientsOnce());
    if (model.optimizer->has_updated()) {
      return FailedPreconditionError("the gradient of " + wanted.name +
                                     " is used: super_offload updates by it in the backward pass");
    }
    const zero::FlatLayout& layout = bucket.parameters().layout();
    const zero::FlatRange range =
        result.sharded ? layout.shard(context.groups.shards->rank()) : layout.full_range();
    update.AgreeOnWeight();
    result.scale = engine_.components_->step.gradient_unit();
    for (const zero::Piece& piece : layout.FindPieces(range)) {
      if (piece.parameter != found.index) continue;
      result.ranges.push_back(
          {piece.parameter_start, bucket.gradients().SourceOf({piece.range_start, piece.count})});
    }
    return result;
  }
  const std::string name = wanted.state.empty() ? wanted.name : wanted.name + "/" + wanted.state;
  result.AddShards(*model.optimizer, name);
  return result;
}

StatusOr<TensorAccess::HeldTensor> TensorAccess::FindWritable(const Wanted& wanted) {
  DS_RETURN_IF_ERROR(engine_.components_->model.ReloadStates());
  // A late weight update would overwrite the written values.
  if (wanted.kind == Kind::kWeight) engine_.components_->model.optimizer->Settle();
  DS_ASSIGN_OR_RETURN(HeldTensor found, Find(wanted));
  if (!found.writable) return InvalidArgumentError(wanted.name + " is frozen");
  if (wanted.kind == Kind::kWeight)
    DS_RETURN_IF_ERROR(engine_.components_->model.CheckWeightsAreEqual());
  return found;
}

Status TensorAccess::CheckIsHeld(const HeldTensor& found, const Wanted& wanted) {
  std::int64_t held = found.held();
  if (found.sharded) {
    held = 0;
    for (const auto& rank :
         comm::GatherNumbers({static_cast<double>(found.held())}, *found.context->groups.shards)) {
      held += static_cast<std::int64_t>(rank[0]);
    }
  }
  if (held == found.numel()) return OkStatus();
  return NotFoundError("the optimizer keeps no state \"" + wanted.state + "\" of " + wanted.name);
}

StatusOr<at::Tensor> TensorAccess::GetFull(const Wanted& wanted) {
  DS_ASSIGN_OR_RETURN(const HeldTensor found, Find(wanted));
  const zero::Context& context = *found.context;
  at::Tensor flat =
      at::zeros({found.numel()}, at::TensorOptions(at::kFloat).device(context.device));
  // A drive may fail on one rank, while others continue to the next collective.
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(found.ReadInto(flat), *context.groups.all));
  if (found.sharded) {
    context.groups.shards->AllReduce(flat, comm::ReduceOp::kSum, wanted.name);
  }
  DS_RETURN_IF_ERROR(CheckIsHeld(found, wanted));
  return flat.div_(found.scale).view(found.shape);
}

StatusOr<at::Tensor> TensorAccess::GetLocal(const Wanted& wanted) {
  DS_ASSIGN_OR_RETURN(const HeldTensor found, Find(wanted));
  std::vector<at::Tensor> values{at::empty({0}, at::kFloat)};
  for (const auto& range : found.ranges) {
    DS_ASSIGN_OR_RETURN(const at::Tensor held, checkpoint::ReadAll(*range.source));
    values.push_back(held.to(at::kFloat));
  }
  return at::cat(values).div_(found.scale);
}

Status TensorAccess::SetFull(const Wanted& wanted, const at::Tensor& value) {
  DS_ASSIGN_OR_RETURN(const HeldTensor found, FindWritable(wanted));
  if (value.sizes() != at::IntArrayRef(found.shape)) {
    return InvalidArgumentError("the value for " + wanted.name + " has another shape");
  }
  DS_RETURN_IF_ERROR(CheckIsHeld(found, wanted));
  const at::Tensor flat = value.reshape({-1});
  const Status written = found.Write([&](const HeldTensor::HeldRange& range) {
    return flat.narrow(0, range.start, range.source->count());
  });
  DS_RETURN_IF_ERROR(
      comm::AgreeOnStatus(written, *engine_.components_->model.sharded->context().groups.all));
  if (wanted.kind == Kind::kWeight) engine_.components_->model.optimizer->PublishWeights();
  return OkStatus();
}

Status TensorAccess::SetLocal(const Wanted& wanted, const at::Tensor& value) {
  const zero::Context& context = engine_.components_->model.sharded->context();
  DS_ASSIGN_OR_RETURN(const HeldTensor found, FindWritable(wanted));
  Status fits;
  if (value.dim() != 1 || value.numel() != found.held()) {
    fits = InvalidArgumentError("the local part of " + wanted.name + " has " +
                                std::to_string(found.held()) + " elements");
  }
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(fits, *context.groups.all));
  DS_RETURN_IF_ERROR(CheckIsHeld(found, wanted));
  std::int64_t taken = 0;
  const Status written = found.Write([&](const HeldTensor::HeldRange& range) {
    const std::int64_t count = range.source->count();
    return value.narrow(0, std::exchange(taken, taken + count), count);
  });
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(written, *context.groups.all));
  if (wanted.kind == Kind::kWeight) engine_.components_->model.optimizer->PublishWeights();
  return OkStatus();
}

StatusOr<at::Tensor> TensorAccess::GetFullFp32Param(const std::string& name) {
  return GetFull({Kind::kWeight, name, ""});
}
StatusOr<at::Tensor> TensorAccess::GetFullGrad(const std::string& name) {
  return GetFull({Kind::kGradient, name, ""});
}
StatusOr<at::Tensor> TensorAccess::GetFullOptimizerState(const std::string& name,
                                                         const std::string& state) {
  return GetFull({Kind::kState, name, state});
}
Status TensorAccess::SetFullFp32Param(const std::string& name, const at::Tensor& value) {
  return SetFull({Kind::kWeight, name, ""}, value);
}
Status TensorAccess::SetFullGrad(const std::string& name, const at::Tensor& value) {
  return SetFull({Kind::kGradient, name, ""}, value);
}
Status TensorAccess::UpdateFullGrads(const std::vector<std::string>& names,
                                     const GradientUpdate& update) {
  for (const std::string& name : names) {
    DS_ASSIGN_OR_RETURN(const at::Tensor gradient, GetFullGrad(name));
    DS_RETURN_IF_ERROR(SetFullGrad(name, update(name, gradient)));
  }
  return OkStatus();
}
Status TensorAccess::SetFullOptimizerState(const std::string& name, const std::string& state,
                                           const at::Tensor& value) {
  return SetFull({Kind::kState, name, state}, value);
}
StatusOr<at::Tensor> TensorAccess::GetLocalFp32Param(const std::string& name) {
  return GetLocal({Kind::kWeight, name, ""});
}
StatusOr<at::Tensor> TensorAccess::GetLocalGrad(const std::string& name) {
  return GetLocal({Kind::kGradient, name, ""});
}
StatusOr<at::Tensor> TensorAccess::GetLocalOptimizerState(const std::string& name,
                                                          const std::string& state) {
  return GetLocal({Kind::kState, name, state});
}
Status TensorAccess::SetLocalFp32Param(const std::string& name, const at::Tensor& value) {
  return SetLocal({Kind::kWeight, name, ""}, value);
}
Status TensorAccess::SetLocalGrad(const std::string& name, const at::Tensor& value) {
  return SetLocal({Kind::kGradient, name, ""}, value);
}
Status TensorAccess::SetLocalOptimizerState(const std::string& name, const std::string& state,
                                            const at::Tensor& value) {
  return SetLocal({Kind::kState, name, state}, value);
}

}  // namespace ds::engine
