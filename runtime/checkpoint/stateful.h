#pragma once

// Stateful: what a part of a training job (engine, optimizer, data loader) implements to be saved
// and loaded; the checkpoint code knows no part by name.
//
// Threads: a Stateful is used by one thread, between optimizer steps.

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

  // Key of this part in the checkpoint's training state: "engine", "data".
  virtual std::string_view state_name() const = 0;

  // Appends what this rank holds; over all ranks the shards cover every tensor. A rank may hold
  // nothing of a tensor; empty shards are allowed.
  virtual void AddShards(std::vector<TensorShard>* shards) = 0;

  // Says why this part cannot be saved just now; asked before anything is written.
  virtual Status CheckSavable() const { return OkStatus(); }

  // Checks that the state which the checkpoint holds can be this part's at all, and changes
  // nothing; asked before any tensor is read, so that the message can say what the checkpoint is
  // instead.
  virtual Status CheckState(const nlohmann::json& state) const {
    static_cast<void>(state);
    return OkStatus();
  }

  // Makes room for the tensors that belong to a state, which CheckState has taken on all ranks:
  // from here on AddShards appends those, for loading.
  virtual void ExpectState(const nlohmann::json& state) { static_cast<void>(state); }

  // Everything that is not a tensor (step, data position, RNG, scheduler, loss scaler): the same on
  // every rank and free of the world size; its numbers are finite. Rank 0's is written. Loading
  // hands it to every rank after the tensors are in place.
  virtual nlohmann::json State() const = 0;
  virtual Status LoadState(const nlohmann::json& state) = 0;
};

// Asks all parts for their shards; the first that is not right is an error.
StatusOr<std::vector<TensorShard>> CollectShards(std::span<Stateful* const> parts);

}  // namespace ds::checkpoint
