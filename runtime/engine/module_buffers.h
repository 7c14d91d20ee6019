#pragma once

// ModuleBuffers: the buffers of a model's modules (BatchNorm's running mean and variance), whole on
// every rank.
//
// In training each rank's own batches change them. As with PyTorch's DDP and DeepSpeed rank 0's are
// the model's: they are saved and exported, and all ranks start from them.

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
  // Gives each buffer of the blocks contiguous memory; what two blocks share comes once. Refuses
  // one that is not on `device` or not dense.
  static StatusOr<ModuleBuffers> Find(const BlockList& model, c10::Device device);

  // Converts those of a floating type.
  void Cast(c10::ScalarType type);
  // Gives every rank rank 0's values. Collective.
  void MakeAlike(comm::Communicator& replicas);
  // A dtype that checkpoints do not have is saved as uint8, with the bytes of an element as one
  // more dimension.
  void AddShards(checkpoint::Replica replica, std::vector<checkpoint::TensorShard>* shards) const;

  struct Named {
    std::string name;  // full
    at::Tensor tensor;
  };
  const std::vector<Named>& all() const { return all_; }

 private:
  std::vector<Named> all_;
};

}  // namespace ds::engine
