#pragma once

// SourceOf: a range of a store as a checkpoint reads and writes it, wherever the bytes lie. They
// stay there: what is offloaded is saved and loaded without the device.

#include <memory>

#include "runtime/checkpoint/tensor_source.h"
#include "runtime/zero/store.h"

namespace ds::zero {

// `store` outlives the source.
std::shared_ptr<checkpoint::TensorSource> SourceOf(Store& store, const FlatRange& range);

}  // namespace ds::zero
