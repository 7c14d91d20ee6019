#pragma once

// RunTiled: applies a row-wise function (a feed-forward layer) to a tile of rows at a time. At most
// one tile's activations exist between its products, in the backward pass, too, because each tile
// is recomputed there (ALST, Bekman et al. 2025).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "runtime/autograd/recompute.h"

namespace ds::models {

struct RowTiles {
  std::int64_t count = 1;  // 1: all rows at once, without recomputation
  activation::RecomputeOptions recompute = {};
};

// A function of some rows of x [..., width] (rows are all dimensions but the last), which start at
// the row `first`.
using TileFunction = std::function<at::Tensor(const at::Tensor& tile, std::int64_t first)>;

// Returns function(x, 0) for x [..., width]. The function must treat each row independently.
// `recompute.trains` states whether it reads parameters that need gradients; these are accumulated
// tile by tile, from the last tile to the first. All tiles but the last are of equal size; there
// are at most as many tiles as rows.
at::Tensor RunTiled(const at::Tensor& x, const RowTiles& tiles, const TileFunction& function);

}  // namespace ds::models
