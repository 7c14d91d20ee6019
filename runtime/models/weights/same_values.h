#pragma once

// HoldSameValues: compares tensors in files that may be larger than memory.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "runtime/base/status.h"

namespace ds::models {

// Fills `values` with the elements that start at `first`.
using SliceReader = std::function<Status(std::int64_t first, const at::Tensor& values)>;

// Returns whether two stored tensors of `count` elements have the same values. Holds only a part of
// each in memory at a time.
StatusOr<bool> HoldSameValues(std::int64_t count, const SliceReader& one, const SliceReader& other);

}  // namespace ds::models
