#pragma once

// Stateful: what a part of a training job (engine, optimizer, data loader) implements to be saved
// and loaded; the checkpoint code knows no part by name.
//
// Threads: a Stateful is used by one thread, between optimizer steps.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/format/regions.h"

namespace ds::checkpoint {

// Ranks that hold the same elements of a tensor are its replicas. Saving splits the elements among
// them, so that nothing is written twice; loading fills every replica.
struct Replica {
  int index = 0;  // this rank's number among the replicas, from 0
  int count = 1;  // the same on all of them
};

// Elements [flat_start, flat_start + data.numel()) of one global tensor flattened in row-major
// order: what this rank holds of it.
//
// `data` views the live state: 1-D and contiguous, on any device. Saving reads it; loading writes
// it in place. It is borrowed until the save or load that asked for it returns.
//
// Names are those of the Hugging Face weights: `<parameter>` (the fp32 master weight where there is
// one), and `<parameter>/<state>` for what the optimizer keeps (`exp_avg`, `momentum_buffer`).
struct TensorShard {
  std::string name;
  std::vector<std::int64_t> global_shape;  // empty for a scalar
  std::int64_t flat_start = 0;
  at::Tensor data;  // its dtype is the tensor's dtype in the checkpoint
  Replica replica = {};
  std::optional<Box> box = {};  // when set, flat_start counts in this flattened box of the tensor
};

class Stateful {
 public:
  virtual ~Stateful() = default;

  // Key of this part in the checkpoint's training state: "engine", "data".
  virtual std::string_view state_name() const = 0;

  // Appends what this rank holds; over all ranks the shards cover every tensor. A rank may hold
  // nothing of a tensor; empty shards are allowed.
  virtual void AddShards(std::vector<TensorShard>* shards) = 0;

  // Checks that the state which the checkpoint holds can be this part's at all; asked before any
  // tensor is read, so that the message can say what the checkpoint is instead.
  virtual Status CheckState(const nlohmann::json& state) const {
    static_cast<void>(state);
    return OkStatus();
  }

  // Everything that is not a tensor (step, data position, RNG, scheduler, loss scaler): the same on
  // every rank and free of the world size; its numbers are finite. Rank 0's is written. Loading
  // hands it to every rank after the tensors are in place.
  virtual nlohmann::json State() const = 0;
  virtual Status LoadState(const nlohmann::json& state) = 0;
};

}  // namespace ds::checkpoint
