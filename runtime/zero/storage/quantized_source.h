#pragma once

// SourceOfQuantized: lets a checkpoint read and write weights that a store holds in 8 bits
// (block_quantization.h), in the training dtype.
//
// A block that is written with the values that were read keeps its bytes, so weights do not drift
// when they are saved and loaded repeatedly: quantizing a block twice may be off by another step. A
// block that is written in two calls, one part each, is quantized in both.

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>

#include "runtime/checkpoint/tensor_source.h"
#include "runtime/zero/storage/store.h"

namespace ds::zero {

// `store` holds the bytes of `count` elements, a multiple of kQuantizationBlock, and must outlive
// the source. `range` is in elements, `dtype` is the dtype of the source.
std::shared_ptr<checkpoint::TensorSource> SourceOfQuantized(Store& store, std::int64_t count,
                                                            const FlatRange& range,
                                                            at::ScalarType dtype);

}  // namespace ds::zero
