#include "runtime/engine/module_buffers.h"

#include <set>
#include <utility>

#include "runtime/checkpoint/tensor_shard.h"

namespace ds::engine {
namespace {

// Returns whether collectives and checkpoints do not support the dtype: complex numbers, 8-bit
// floats.
bool NeedsByteTransport(const at::Tensor& tensor) {
  return checkpoint::DtypeName(tensor.scalar_type()).empty();
}

// Returns a flat view.
at::Tensor Flatten(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().view({tensor.numel()});
  return NeedsByteTransport(tensor) ? flat.view(at::kByte) : flat;
}

}  // namespace

StatusOr<ModuleBuffers> ModuleBuffers::Find(const BlockList& model, c10::Device device) {
  std::vector<Named> named;
  for (const auto& block : model.blocks()) {
    for (const auto& item : block->named_buffers()) {
      named.push_back({block->FullName(item.key()), item.value()});
    }
  }
  return Take(named, device);
}

StatusOr<ModuleBuffers> ModuleBuffers::Take(const std::vector<Named>& named, c10::Device device) {
  ModuleBuffers buffers;
  std::set<const void*> seen;
  for (const auto& [name, tensor] : named) {
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    if (tensor.device() != device) {
      return InvalidArgumentError("buffer " + name + " is on " + tensor.device().str() +
                                  ", the engine on " + device.str());
    }
    if (tensor.layout() != at::kStrided) {
      return UnimplementedError("buffer " + name + " is sparse; only dense ones are kept alike");
    }
    // A lazy conjugate or negation has no storage of its own.
    const at::Tensor plain = tensor.resolve_conj().resolve_neg().contiguous();
    if (!plain.is_same(tensor)) tensor.set_data(plain);
    buffers.all_.push_back({name, tensor});
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

void ModuleBuffers::MakeEqual(comm::Communicator& replicas) {
  for (const auto& [name, tensor] : all_) replicas.Broadcast(Flatten(tensor), 0, name);
}

void ModuleBuffers::AddShards(checkpoint::Replica replica,
                              std::vector<checkpoint::TensorShard>* shards) const {
  for (const auto& [name, tensor] : all_) {
    std::vector<std::int64_t> shape = tensor.sizes().vec();
    if (NeedsByteTransport(tensor)) shape.push_back(static_cast<std::int64_t>(tensor.itemsize()));
    shards->push_back({.name = name,
                       .placement = {.global_shape = std::move(shape)},
                       .source = checkpoint::SourceOf(Flatten(tensor)),
                       .replica = replica});
  }
}

}  // namespace ds::engine
