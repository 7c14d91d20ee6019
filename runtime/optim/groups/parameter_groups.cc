#include "runtime/optim/groups/parameter_groups.h"

#include <cmath>
#include <utility>

namespace ds::optim {

ParameterGroup OneGroup(int block, const std::string& name, const at::Tensor& parameter) {
  static_cast<void>(block);
  static_cast<void>(name);
  static_cast<void>(parameter);
  return {};
}

ParameterGroup NoDecayOnNormsAndBiases(int block, const std::string& name,
                                       const at::Tensor& parameter) {
  ParameterGroup group = OneGroup(block, name, parameter);
  // As in Trainer, which selects by names and decays DoRA's magnitudes.
  const bool is_magnitude = name.ends_with("lora_magnitude_vector");
  if (parameter.dim() < 2 && !is_magnitude) group.weight_decay_factor = 0.0;
  return group;
}

ParameterGrouper WithLayerwiseRates(ParameterGrouper inner, int blocks, double decay) {
  return [inner = std::move(inner), blocks, decay](int block, const std::string& name,
                                                   const at::Tensor& parameter) {
    ParameterGroup group = inner(block, name, parameter);
    group.lr_factor *= std::pow(decay, blocks - 1 - block);
    return group;
  };
}

}  // namespace ds::optim
