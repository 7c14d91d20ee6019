#include "runtime/models/decoder/family_block.h"

#include <cmath>

#include "runtime/plan/model/lora_spec.h"

namespace ds::models {

FirstValue FamilyBlock::DescribeFirstValue(const std::string& name, std::int64_t dimensions) const {
  if (!IsLoraParameter(name)) return init_.Describe(name, dimensions);
  // Adapters have no effect at first. A has PEFT's variance; PEFT draws it uniformly.
  if (name.ends_with("lora_B.weight")) return {};
  if (IsMagnitudeParameter(name)) return {.mean = 1.0};  // DerivedValues computes the norms
  const std::int64_t in = DescribePlacement(name, named_parameters()[name]).global_shape[1];
  return {.std = 1.0 / std::sqrt(3.0 * static_cast<double>(in))};
}

}  // namespace ds::models
