#include "runtime/plan/memory/engine_rules.h"

#include "runtime/plan/zero/tiers.h"

namespace ds::engine {
namespace {

// Skipping a step rolls back the updates of its backward pass. All ranks agree on the weight of a
// step's samples before its last backward pass, which pipeline stages reach at different times.
Status CheckUpdatesInBackward(const config::DsConfig& config, const EngineSetting& setting) {
  const zero::Tiers tiers = zero::PlanTiers(config, /*on_gpu=*/false);
  if (tiers.updates_in_backward && config.parallel.pipeline > 1) {
    return InvalidArgumentError(
        "zero_optimization.offload_optimizer.super_offload updates a block as its gradients "
        "arrive, and stages of a pipeline have to agree on the step first: leave it out, or "
        "pipeline stages");
  }
  if (tiers.updates_in_backward && !tiers.rolls_back && setting.skips_non_finite) {
    return InvalidArgumentError(
        "a step with a gradient that is not finite cannot be skipped with super_offload: the model "
        "is updated by then, and without gradient_clipping the old values are not kept. Set "
        "gradient_clipping, rewind to a checkpoint, or stop");
  }
  return OkStatus();
}

// ZenFlow selects full columns of a parameter, so every rank needs its full gradients.
Status CheckZenFlow(const config::DsConfig& config) {
  const config::ParallelConfig& parallel = config.parallel;
  if (!config.zero_optimization.zenflow ||
      (parallel.ranks_of_a_sample() == 1 && parallel.expert == 1)) {
    return OkStatus();
  }
  return InvalidArgumentError(
      "zero_optimization.zenflow is built for data-parallel ranks: leave it out, or pipeline "
      "stages and tensor, sequence and expert ranks");
}

bool KnowsFullMatrices(const config::DsConfig& config) {
  return config::ReachOf(config.optimizer.algorithm) != config::Reach::kElement;
}

bool Compresses(const config::ZeroConfig& zero) {
  return zero.quantized_weights || zero.quantized_gradients || zero.hpz_partition_size > 1;
}

Status CheckTensorSupport(const config::DsConfig& config) {
  const config::ZeroConfig& zero = config.zero_optimization;
  std::string what;
  if (KnowsFullMatrices(config)) {
    what = "an optimizer that needs full matrices";
  } else if (config.sparse_gradients) {
    what = "sparse_gradients";
  } else if (Compresses(zero) || zero.quantized_frozen_weights) {
    what = "ZeRO++";
  }
  return what.empty() ? OkStatus() : CheckModelIsUnsplit(config.parallel, what);
}

constexpr char kGroupLists[] =
    "lists in scheduler.params, which number the groups of the full model,";

Status CheckExpertSupport(const config::DsConfig& config) {
  std::string what;
  if (KnowsFullMatrices(config)) {
    what = "an optimizer that needs the full model";
  } else if (!config.group_schedules.empty()) {
    what = kGroupLists;
  } else if (Compresses(config.zero_optimization)) {
    what = "ZeRO++";
  }
  return what.empty() ? OkStatus() : CheckModelIsUnsplit(config.parallel, what);
}

Status CheckPipelineSupport(const config::DsConfig& config, const EngineSetting& setting) {
  const pipeline::PipelineShape shape{
      .stages = config.parallel.pipeline,
      .chunks = setting.chunks,
      .micro_batches = static_cast<int>(config.batch.gradient_accumulation_steps)};
  DS_RETURN_IF_ERROR(pipeline::PipelineSchedule::Create(setting.schedule, shape).status());
  std::string what;
  if (KnowsFullMatrices(config)) {
    what = "an optimizer that needs more than one stage";
  } else if (!config.optimizer.base_shapes.empty()) {
    what = "optimizer.params.base_shapes";
  } else if (!config.group_schedules.empty()) {
    what = kGroupLists;
  } else if (config.sparse_gradients) {
    what = "sparse_gradients";
  }
  return what.empty() ? OkStatus() : CheckModelIsUnsplit(config.parallel, what);
}

}  // namespace

Status CheckEngineRules(const config::DsConfig& config, const EngineSetting& setting) {
  const config::ParallelConfig& parallel = config.parallel;
  DS_RETURN_IF_ERROR(CheckUpdatesInBackward(config, setting));
  DS_RETURN_IF_ERROR(CheckZenFlow(config));
  if (parallel.tensor > 1) DS_RETURN_IF_ERROR(CheckTensorSupport(config));
  if (parallel.expert > 1) DS_RETURN_IF_ERROR(CheckExpertSupport(config));
  return parallel.pipeline > 1 ? CheckPipelineSupport(config, setting) : OkStatus();
}

Status CheckModelIsUnsplit(const config::ParallelConfig& parallel, const std::string& what) {
  if (parallel.pipeline > 1) {
    return UnimplementedError(what + " is not built with a pipeline, which has " +
                              std::to_string(parallel.pipeline) + " stages here");
  }
  if (parallel.expert > 1) {
    return UnimplementedError(what + " is not built with expert parallelism, which is " +
                              std::to_string(parallel.expert) + " here");
  }
  if (parallel.tensor == 1) return OkStatus();
  return UnimplementedError(what + " is not built with tensor parallelism, which is " +
                            std::to_string(parallel.tensor) + " here");
}

}  // namespace ds::engine
