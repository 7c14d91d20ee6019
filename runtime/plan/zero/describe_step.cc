#include "runtime/plan/zero/describe_step.h"

#include <numeric>

namespace ds::zero {

using config::Width;

namespace {

// True if groups of `neighbours` consecutive ranks span several hosts.
bool SpanHosts(const StepSetting& setting, int neighbours) {
  const int of_host = setting.ranks_of_host;
  const bool one_host = of_host == 0 || of_host >= setting.ranks;
  return !one_host && (neighbours > of_host || of_host % neighbours != 0);
}

}  // namespace

bool HasSecondaryShards(const config::ZeroConfig& zero, int shards) {
  return zero.stage == 3 && zero.hpz_partition_size > 1 && zero.hpz_partition_size < shards;
}

StepMemoryInput DescribeStep(const config::DsConfig& config, const StepSetting& setting) {
  const config::ZeroConfig& zero = config.zero_optimization;
  const int shards = zero.stage == 0 ? setting.ranks : zero.mics_shard_size.value_or(setting.ranks);
  const config::StateTypes types = config::ChooseStateTypes(config);
  const config::DataType reduction_type = config.communication_data_type.value_or(types.parameter);
  const bool overlap =
      ChooseOverlap(zero, {.spans_hosts = SpanHosts(setting, shards), .on_gpu = setting.on_gpu});
  const ElementSizes sizes{.parameter = Width(types.parameter), .gradient = Width(reduction_type)};
  ResidencyBudgets budgets = MakeResidencyBudgets(zero, sizes, overlap);
  budgets.fetch_bytes = ChooseFetchBytes(zero, sizes.parameter);
  const config::Reach reach = config::ReachOf(config.optimizer.algorithm);
  std::optional<StateSharding> of_experts;
  if (const int parts = config.parallel.expert; parts > 1) {
    of_experts = {shards / parts, config::ShardingOf(zero, shards / parts)};
  }
  return {.shard_ranks = shards,
          .gradient_ranks = setting.ranks,
          .sharding = config::ShardingOf(zero, shards),
          .of_experts = of_experts,
          .types = types,
          .reduction_type = reduction_type,
          .optimizer_states = config::CountOptimizerStates(config.optimizer),
          .budgets = budgets,
          .overlap = overlap,
          .publish_elements = zero.allgather_bucket_size,
          .micro_batches = config.batch.gradient_accumulation_steps,
          .tiers = PlanTiers(config, setting.on_gpu),
          .updates_by_sub_group = reach != config::Reach::kModel,
          .splits_sub_groups = reach == config::Reach::kElement,
          .zenflow = zero.zenflow,
          .secondary_ranks = HasSecondaryShards(zero, shards) ? zero.hpz_partition_size : 0,
          .rounds_weights = zero.stage == 3 && zero.quantized_weights,
          .keeps_rounded = zero.stage == 3 && zero.quantized_frozen_weights,
          .rounds_gradients = zero.stage == 3 && zero.quantized_gradients,
          .keeps_lost_values = zero.stage == 3 && zero.loco.has_value()};
}

StepWindows ChooseWindows(const config::DsConfig& config, const StepMemoryInput& step) {
  SteppedStage stage{.stages = config.parallel.pipeline,
                     .micro_batches = config.batch.gradient_accumulation_steps};
  for (const UnitShape& unit : step.units) {
    for (const BucketShape& bucket : unit.buckets) {
      const auto numel =
          std::accumulate(bucket.numels.begin(), bucket.numels.end(), std::int64_t{0});
      stage.parameters += numel;
      if (bucket.trained) stage.trained += numel;
    }
  }
  return ChooseStepWindows(config.zero_optimization, step.sharding, stage);
}

}  // namespace ds::zero
