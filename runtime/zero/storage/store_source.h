#pragma once

// SourceOf: a range of a store as a checkpoint reads and writes it, wherever the bytes lie. They
// stay there: what is offloaded is saved and loaded without the device.

#include <functional>
#include <memory>

#include "runtime/checkpoint/tensor_source.h"
#include "runtime/zero/storage/store.h"

namespace ds::zero {

// `store` outlives the source.
std::shared_ptr<checkpoint::TensorSource> SourceOf(Store& store, const FlatRange& range);

// Calls `use` with a range's elements where they lie, and returns what it says. What a file had to
// bring for that goes again. A drive that fails is kDataLoss: other ranks wait for this one's
// status.
Status UseWhereItLies(Store& store, const FlatRange& range, Access access,
                      const std::function<Status(const at::Tensor&)>& use);

}  // namespace ds::zero
