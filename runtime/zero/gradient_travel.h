#pragma once

// GradientTravel: how gradients go between ranks. NonFiniteArrival: what is found among them.

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ds::zero {

// The first of a step's gradients that are looked at that was not finite when it arrived.
struct NonFiniteArrival {
  int parameter = 0;            // in the layout
  std::int64_t micro_step = 0;  // of the step, from 0
  std::int64_t element = 0;     // of the flattened parameter
  double value = 0.0;
};

// The form in which gradients go between ranks.
struct GradientTravel {
  c10::ScalarType dtype = c10::kFloat;
  std::string tag = {};  // of the collectives
  // Tables (2-D) that unsharded travel by rows have the elements of a row here, by parameter.
  // Empty: everything travels.
  std::vector<std::int64_t> row_widths = {};
  bool rounded = false;  // where Context::quantized_gradients says so
};

}  // namespace ds::zero
