#include "runtime/zero/plan/describe_step.h"

#include <variant>

namespace ds::zero {
namespace {

using config::Width;

// As optim::Optimizer::reach: all but the 1-bit ones.
bool UpdatesInTurns(const config::OptimizerConfig& optimizer) {
  const config::OptimizerAlgorithm& algorithm = optimizer.algorithm;
  return std::holds_alternative<config::AdamConfig>(algorithm) ||
         std::holds_alternative<config::SgdConfig>(algorithm) ||
         std::holds_alternative<config::LionConfig>(algorithm) ||
         std::holds_alternative<config::AdagradConfig>(algorithm) ||
         std::holds_alternative<config::LambConfig>(algorithm) ||
         std::holds_alternative<config::MuonConfig>(algorithm);
}

}  // namespace

StepMemoryInput DescribeStep(const config::DsConfig& config, const StepSetting& setting) {
  const config::ZeroConfig& zero = config.zero_optimization;
  const int shards = zero.stage == 0 ? setting.ranks : zero.mics_shard_size.value_or(setting.ranks);
  const config::StateTypes types = config::ChooseStateTypes(config);
  const config::DataType travel = config.communication_data_type.value_or(types.parameter);
  const bool overlap = ChooseOverlap(zero, setting.calls);
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
          .updates_in_turns = UpdatesInTurns(config.optimizer)};
}

}  // namespace ds::zero
