#pragma once

// ModuleBuffers holds the buffers of a model's modules (BatchNorm's running mean and variance),
// unsharded on every rank.
//
// In training, each rank's own batches change them. As with PyTorch's DDP and DeepSpeed, rank 0's
// buffers are authoritative: they are saved and exported, and all ranks start from them.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/stateful.h"
#include "runtime/comm/communicator.h"
#include "runtime/models/block.h"

namespace ds::engine {

class ModuleBuffers {
 public:
  // Gives each buffer of the blocks contiguous memory; a shared buffer is listed once. Fails if a
  // buffer is not on `device` or not dense.
  static StatusOr<ModuleBuffers> Find(const BlockList& model, c10::Device device);

  struct Named {
    std::string name;  // full
    at::Tensor tensor;
  };
  // The same for these buffers.
  static StatusOr<ModuleBuffers> Take(const std::vector<Named>& buffers, c10::Device device);

  // Converts buffers of a floating-point type.
  void Cast(c10::ScalarType type);
  // Broadcasts rank 0's values. Collective.
  void MakeEqual(comm::Communicator& replicas);
  // A dtype that checkpoints do not support is saved as uint8, with the bytes of an element as an
  // additional dimension.
  void AddShards(checkpoint::Replica replica, std::vector<checkpoint::TensorShard>* shards) const;

  const std::vector<Named>& all() const { return all_; }

 private:
  std::vector<Named> all_;
};

}  // namespace ds::engine
