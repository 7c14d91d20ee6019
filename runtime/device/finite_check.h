#pragma once

// FindFirstNonFinite finds the first non-finite value of a tensor.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace ds::precision {

struct NonFinite {
  std::int64_t index = 0;  // in the flat view
  std::string kind;        // "NaN", "+Inf" or "-Inf"
};

// Returns the first non-finite value of `flat` (1-D, any floating dtype and device).
std::optional<NonFinite> FindFirstNonFinite(const at::Tensor& flat);

}  // namespace ds::precision
