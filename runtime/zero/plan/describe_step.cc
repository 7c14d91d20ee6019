#include "runtime/zero/plan/describe_step.h"

namespace ds::zero {

using config::Width;

StepMemoryInput DescribeStep(const config::DsConfig& config, const StepSetting& setting) {
  const config::ZeroConfig& zero = config.zero_optimization;
  const int shards = zero.stage == 0 ? setting.ranks : zero.mics_shard_size.value_or(setting.ranks);
  const config::StateTypes types = config::ChooseStateTypes(config);
  const config::DataType travel = config.communication_data_type.value_or(types.parameter);
  const bool overlap = ChooseOverlap(zero, setting.calls);
  const config::Reach reach = config::ReachOf(config.optimizer.algorithm);
  const ElementSizes sizes{.parameter = Width(types.parameter), .gradient = Width(travel)};
  ResidencyBudgets budgets = MakeResidencyBudgets(zero, sizes, overlap);
  budgets.fetch_bytes = ChooseFetchBytes(zero, sizes.parameter);
  return {.shard_ranks = shards,
          .gradient_ranks = setting.ranks,
          .sharding = config::ShardingOf(zero, shards),
          .types = types,
          .travel = travel,
          .optimizer_states = config::CountOptimizerStates(config.optimizer),
          .budgets = budgets,
          .overlap = overlap,
          .micro_batches = config.batch.gradient_accumulation_steps,
          .tiers = PlanTiers(config, setting.calls.on_gpu),
          .updates_in_turns = reach != config::Reach::kModel,
          .cuts_turns = reach == config::Reach::kElement};
}

}  // namespace ds::zero
