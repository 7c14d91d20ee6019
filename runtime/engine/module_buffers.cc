#include "runtime/engine/module_buffers.h"

#include <set>

namespace ds::engine {

StatusOr<ModuleBuffers> ModuleBuffers::Find(const BlockList& model, c10::Device device) {
  ModuleBuffers buffers;
  std::set<const void*> seen;
  for (const auto& block : model.blocks()) {
    for (const auto& item : block->named_buffers()) {
      at::Tensor tensor = item.value();
      if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
      const std::string name = block->FullName(item.key());
      if (tensor.device() != device) {
        return InvalidArgumentError("buffer " + name + " is on " + tensor.device().str() +
                                    ", the engine on " + device.str());
      }
      if (!tensor.is_contiguous()) tensor.set_data(tensor.contiguous());
      buffers.all_.push_back({name, tensor});
    }
  }
  return buffers;
}

void ModuleBuffers::Cast(c10::ScalarType type) {
  for (Named& buffer : all_) {
    if (at::isFloatingType(buffer.tensor.scalar_type())) {
      buffer.tensor.set_data(buffer.tensor.to(type));
    }
  }
}

void ModuleBuffers::MakeAlike(comm::Communicator& replicas) {
  for (const Named& buffer : all_) replicas.Broadcast(buffer.tensor.detach(), 0);
}

void ModuleBuffers::AddShards(checkpoint::Replica replica,
                              std::vector<checkpoint::TensorShard>* shards) const {
  for (const auto& [name, tensor] : all_) {
    shards->push_back({.name = name,
                       .global_shape = tensor.sizes().vec(),
                       .data = tensor.detach().view({-1}),
                       .replica = replica});
  }
}

}  // namespace ds::engine
