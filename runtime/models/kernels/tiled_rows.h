#pragma once

// RunTiled: a function of rows (a feed-forward part) on some rows at a time. Between its products
// there is then never more than one tile's activations, in the backward pass either, for which each
// tile is computed again (ALST, Bekman et al. 2025).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "runtime/autograd/recompute.h"

namespace ds::models {

struct RowTiles {
  std::int64_t count = 1;  // 1: all rows at once, and nothing is computed again
  activation::RecomputeOptions recompute = {};
};

// function(x) of x [..., width], whose rows (all but the last dimension) the function treats each
// for itself. `recompute.trains` says whether it reads parameters that need gradients; these get
// theirs tile by tile, the last one first. Tiles are of equal size but the last, and as many as
// there are rows at most.
at::Tensor RunTiled(const at::Tensor& x, const RowTiles& tiles,
                    const std::function<at::Tensor(const at::Tensor&)>& function);

}  // namespace ds::models
