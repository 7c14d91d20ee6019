#pragma once

// SourceOf: lets a checkpoint read and write a range of a store on the tier that holds it. The
// bytes are not moved: offloaded state is saved and loaded without the device.

#include <functional>
#include <memory>

#include "runtime/checkpoint/tensor_source.h"
#include "runtime/zero/storage/store.h"

namespace ds::zero {

// `store` must outlive the source.
std::shared_ptr<checkpoint::TensorSource> SourceOf(Store& store, const FlatRange& range);

// Calls `use` with a range's elements on their own tier, and returns its status. Memory that was
// needed to load a file's range is released again. A drive error becomes kDataLoss instead of an
// exception, because other ranks wait for this rank's status.
Status UseOnOwnTier(Store& store, const FlatRange& range, Access access,
                    const std::function<Status(const at::Tensor&)>& use);

}  // namespace ds::zero
