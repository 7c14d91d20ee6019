#pragma once

// AddTiledLinear: a linear layer as a row of blocks, each with one tile of the matrix. Blocks are
// what ZeRO-3 gathers and reduces, so that of a matrix too large for a rank one tile is there at a
// time. DeepSpeed's zero.TiledLinear, under its names for the tiles.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "runtime/base/status.h"
#include "runtime/models/block.h"

namespace ds::models {

struct TiledLinear {
  std::string name;  // its tiles': <name>.linears.<of out>.<of in>.weight, [out, in] each
  std::int64_t in = 0, out = 0;
  // Into so many parts inputs and outputs are cut, as evenly as it goes, larger ones first.
  std::int64_t in_splits = 1, out_splits = 1;
  bool bias = true;  // the last tile of each output part has it
};

// Appends in_splits * out_splits blocks which make bundle.hidden [..., out] of [..., in]; partial
// sums pass between them as extras of the bundle. Refuses splits that leave a part empty.
Status AddTiledLinear(BlockList& model, const TiledLinear& layer,
                      const at::TensorOptions& options = {});

}  // namespace ds::models
