#pragma once

// ElementsOf, BytesOf and the functions below convert tensors for the torch-free core of the
// collectives (shm/cpu_group.h), which takes element counts and pointers. The core supports dense
// contiguous CPU tensors; functions throw c10::Error for other tensors.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "runtime/comm/shm/cpu_group.h"

namespace ds::comm {

Elements ElementsOf(const at::Tensor& tensor);
// Rejects reductions that the core does not implement, and averages of integers.
ReduceOp ToReduceOp(const c10d::ReduceOp& op, const at::Tensor& tensor);
std::byte* BytesOf(const at::Tensor& tensor);
// Returns the tensor of a list of one. c10d passes lists, for processes with several devices.
const at::Tensor& OnlyTensor(const std::vector<at::Tensor>& tensors);

// Returns one pointer per rank, into tensors that all match `like`.
std::vector<std::byte*> ListData(const std::vector<at::Tensor>& tensors, int size,
                                 const at::Tensor& like);
// Returns one pointer per rank, into equal parts of `full`, each as large as `part`.
std::vector<std::byte*> PartData(const at::Tensor& full, int size, const at::Tensor& part);
std::vector<const std::byte*> AsReadOnly(const std::vector<std::byte*>& data);

// Returns the number of elements in each rank's part of `tensor`, for an all-to-all. A part is a
// range of dimension 0: `splits` has its number of rows. Empty `splits`: equal parts.
std::vector<std::uint64_t> PartCounts(const at::Tensor& tensor,
                                      const std::vector<std::int64_t>& splits, int size);
// Returns the start of each rank's part of `tensor`, from the results of PartCounts.
std::vector<std::byte*> PartStarts(const at::Tensor& tensor,
                                   const std::vector<std::uint64_t>& counts);

}  // namespace ds::comm
