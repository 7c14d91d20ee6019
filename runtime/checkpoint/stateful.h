#pragma once

// Stateful is the interface of a part of a training job (engine, optimizer, data loader) that can
// be saved and loaded. Checkpoint code handles all parts through this interface.
//
// Not thread-safe. Call it from one thread, between optimizer steps.

#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/tensor_shard.h"

namespace ds::checkpoint {

class Stateful {
 public:
  virtual ~Stateful() = default;

  // Returns the key of this part in the checkpoint's training state: "engine", "data".
  virtual std::string_view state_name() const = 0;

  // Appends this rank's shards, for saving and for loading (SaveCheckpoint, LoadCheckpoint). Over
  // all ranks the shards must cover every tensor. A rank may hold no elements of a tensor; empty
  // shards are allowed.
  virtual void AddShards(std::vector<TensorShard>* shards) = 0;

  // Returns an error if this part cannot be saved now. Called before anything is written.
  virtual Status CheckSavable() const { return OkStatus(); }

  // Checks that this part can load the checkpoint's state, and changes nothing. Called before any
  // tensor is read, so that the message can describe the checkpoint's actual content.
  virtual Status CheckState(const nlohmann::json& state) const {
    static_cast<void>(state);
    return OkStatus();
  }

  // Prepares a load: allocates tensors that exist only in some states. Called after CheckState has
  // accepted `state` on all ranks. From then on AddShards appends these tensors, too.
  virtual void ExpectState(const nlohmann::json& state) { static_cast<void>(state); }

  // Returns all state that is not a tensor (step, data position, RNG, scheduler, loss scaler). It
  // must be equal on every rank and independent of the world size. JSON limits numbers to finite
  // ones. A save writes rank 0's state. A load passes it to LoadState on every rank after the
  // tensors have been filled.
  virtual nlohmann::json State() const = 0;
  virtual Status LoadState(const nlohmann::json& state) = 0;
};

// Collects the shards of all parts. Fails at the first invalid shard.
StatusOr<std::vector<TensorShard>> CollectShards(std::span<Stateful* const> parts);

}  // namespace ds::checkpoint
