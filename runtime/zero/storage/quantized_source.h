#pragma once

// SourceOfQuantized: weights that a store holds in 8 bits (block_quantization.h), as a checkpoint
// reads and writes them: in the training dtype.
//
// A block whose values are written as they have been read keeps its bytes, so that weights which
// are saved and loaded again do not drift: a block quantised twice may be off by another step. One
// that is written in two calls, each with a part of it, is quantised in both.

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>

#include "runtime/checkpoint/tensor_source.h"
#include "runtime/zero/storage/store.h"

namespace ds::zero {

// `store` holds the bytes of `count` elements, a multiple of kQuantizationBlock, and outlives the
// source. `range` is of elements, `dtype` what they become.
std::shared_ptr<checkpoint::TensorSource> SourceOfQuantized(Store& store, std::int64_t count,
                                                            const FlatRange& range,
                                                            at::ScalarType dtype);

}  // namespace ds::zero
