#pragma once

// Tensors as the torch-free core sees them: pointers, counts and element types. What the CPU
// collectives cannot take is refused here (c10::Error).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "runtime/comm/shm/host_group.h"

namespace ds::comm {

std::byte* BytesOf(const at::Tensor& tensor);
// Refuses tensors that are not dense, contiguous, on the CPU and of a supported type.
Elements ElementsOf(const at::Tensor& tensor);
// Refuses reductions that the core does not have, and averages of integers.
ReduceOp ToReduceOp(const c10d::ReduceOp& op, const at::Tensor& tensor);
int CheckRank(std::int64_t rank, int size);

const at::Tensor& OnlyTensor(const std::vector<at::Tensor>& tensors);
// One pointer per rank, into tensors that all match `like`.
std::vector<std::byte*> ListData(const std::vector<at::Tensor>& tensors, int size,
                                 const at::Tensor& like);
// One pointer per rank, into equal parts of `whole`, each as large as `part`.
std::vector<std::byte*> PartData(const at::Tensor& whole, int size, const at::Tensor& part);
std::vector<const std::byte*> AsReadOnly(const std::vector<std::byte*>& data);

}  // namespace ds::comm
