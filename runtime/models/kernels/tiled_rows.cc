#include "runtime/models/kernels/tiled_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <vector>

namespace ds::models {

at::Tensor RunTiled(const at::Tensor& x, const RowTiles& tiles, const TileFunction& function) {
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const std::int64_t count = std::min(tiles.count, rows.size(0));
  if (count <= 1) return function(x, 0);
  std::vector<at::Tensor> results;
  // A single operator splits x, so that a single one assembles the gradients.
  std::int64_t first = 0;
  for (const at::Tensor& tile : rows.split((rows.size(0) + count - 1) / count, /*dim=*/0)) {
    const activation::RecomputedForward part = [function, first](activation::Tensors given) {
      return activation::Tensors{function(given[0], first)};
    };
    first += tile.size(0);
    results.push_back(activation::Recompute(part, {tile}, tiles.recompute)[0]);
  }
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = results[0].size(-1);
  return at::cat(results, /*dim=*/0).view(shape);
}

}  // namespace ds::models
