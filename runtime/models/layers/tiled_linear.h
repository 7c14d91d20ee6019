#pragma once

// AddTiledLinear: a linear layer as a row of blocks, each with one tile of the matrix. ZeRO-3
// gathers and reduces by block, so only one tile of a matrix that is too large for a rank is
// present at a time. DeepSpeed's zero.TiledLinear, with its names for the tiles.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "runtime/base/status.h"
#include "runtime/models/block.h"

namespace ds::models {

struct TiledLinear {
  std::string name;  // tiles: <name>.linears.<of out>.<of in>.weight, [out, in] each
  std::int64_t in = 0, out = 0;
  // The number of parts of inputs and outputs. Parts are as equal as possible, larger ones first.
  std::int64_t in_splits = 1, out_splits = 1;
  bool bias = true;  // the last tile of each output part has it
};

// Appends in_splits * out_splits blocks that compute bundle.hidden [..., out] from [..., in].
// Partial sums are passed between them as extras of the bundle. Fails if a part would be empty.
Status AddTiledLinear(BlockList& model, const TiledLinear& layer,
                      const at::TensorOptions& options = {});

}  // namespace ds::models
