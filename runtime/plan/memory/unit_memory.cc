#include "runtime/plan/memory/unit_memory.h"

#include <variant>

#include "runtime/plan/memory/unit_shapes.h"

namespace ds::engine {

StatusOr<zero::StepMemory> PlanUnitMemory(const config::DsConfig& config,
                                          const zero::StepSetting& setting,
                                          const std::vector<PlannedUnit>& units,
                                          std::int64_t batch_bytes) {
  if (const std::string unknown = FindUnknownMemory(config); !unknown.empty()) {
    return UnimplementedError(unknown + " is not known");
  }
  zero::StepMemoryInput step = zero::DescribeStep(config, setting);
  step.batch_bytes = batch_bytes;
  std::vector<models::BlockSizes> blocks;
  for (const PlannedUnit& unit : units) {
    blocks.push_back(unit.sizes);
    step.names.push_back(unit.name);
    step.activations.push_back(unit.activations);
  }
  step.units = ListUnitShapes(config, step, blocks);
  step.windows = zero::ChooseWindows(config, step);
  return zero::PlanStepMemory(step);
}

std::string FindUnknownMemory(const config::DsConfig& config) {
  const config::OptimizerAlgorithm& algorithm = config.optimizer.algorithm;
  if (std::holds_alternative<config::OneBitAdamConfig>(algorithm) ||
      std::holds_alternative<config::OneBitLambConfig>(algorithm) ||
      std::holds_alternative<config::ZeroOneAdamConfig>(algorithm)) {
    return "the memory of 1-bit optimizers";
  }
  if (config.sparse_gradients) return "the memory of sparse_gradients";
  return config.torch_autocast.enabled ? "the memory of torch_autocast" : "";
}

}  // namespace ds::engine
