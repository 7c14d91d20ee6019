#pragma once

// FindFirstNonFinite finds the first value that is not finite.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace ds::precision {

struct NonFinite {
  std::int64_t index = 0;  // in the flat view
  std::string kind;        // "NaN", "+Inf" or "-Inf"
};

// The first value of `flat` (1-D, any floating dtype and device) that is not finite.
std::optional<NonFinite> FindFirstNonFinite(const at::Tensor& flat);

}  // namespace ds::precision
