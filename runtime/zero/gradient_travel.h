#pragma once

// GradientTravel: how gradients are sent between ranks. NonFiniteArrival: a non-finite gradient.

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ds::zero {

// The first checked gradient of a step that was not finite when it arrived.
struct NonFiniteArrival {
  int parameter = 0;            // index in the layout
  std::int64_t micro_step = 0;  // in the step, from 0
  std::int64_t element = 0;     // in the flattened parameter
  double value = 0.0;
};

// The form in which gradients are sent between ranks.
struct GradientTravel {
  c10::ScalarType dtype = c10::kFloat;
  std::string tag = {};  // of the collectives
  // The row width in elements of each table (2-D) whose unsharded gradient is reduced sparsely, row
  // by row. Empty: the full gradient is reduced.
  std::vector<std::int64_t> row_widths = {};
  bool rounded = false;  // quantized if Context::quantized_gradients is set
};

}  // namespace ds::zero
