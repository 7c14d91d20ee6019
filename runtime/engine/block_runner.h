#pragma once

// BlockRunner runs the blocks of a model in forward passes: with the recomputation of activations
// (activation_checkpointing), tiled feed-forward layers and the storage of chunked attention. It
// reports parameters that a block reads without declaring them.
//
// Not thread-safe. The autograd graphs of the passes refer to this object, which must outlive them.

#include <cstdint>
#include <map>
#include <optional>

#include "runtime/autograd/keeper.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/clock.h"
#include "runtime/config/ds_config.h"
#include "runtime/config/recompute_choice.h"
#include "runtime/engine/chunk_runner.h"
#include "runtime/engine/rank_topology.h"
#include "runtime/engine/trained_model.h"
#include "runtime/models/bundle.h"

namespace ds::engine {

struct BlockRunnerOptions {
  config::ActivationCheckpointingConfig checkpointing;
  config::RecomputeChoice recompute;
  std::int64_t mlp_tiles = 1;
  activation::Keeper keeper;     // for chunked attention
  const Clock* clock = nullptr;  // borrowed
};

class BlockRunner : public ChunkRunner {
 public:
  BlockRunner() = default;
  explicit BlockRunner(const BlockRunnerOptions& options) : options_(options) {}

  // Runs the blocks of a chunk, one after the other, through model.sharded.
  Bundle RunChunk(TrainedModel& model, const RankTopology& topology, Bundle bundle,
                  int chunk) override;

  // Times by block, for recomputed blocks, with activation_checkpointing.profile. An autograd graph
  // may still refer to the entries when they are read.
  std::map<int, activation::RunTimes>& recompute_times() { return recompute_times_; }

 private:
  activation::RecomputeOptions MakeRecomputeOptions(int block);
  activation::RecomputeOptions MakeBlockOptions(const RankTopology& topology, int block);
  Bundle RunBlock(const BlockList& blocks, const RankTopology& topology, int index, Bundle bundle);
  Bundle RunBlockWatched(TrainedModel& model, const RankTopology& topology, int index,
                         Bundle bundle);

  BlockRunnerOptions options_;
  std::map<int, activation::RunTimes> recompute_times_;
  // The buffer of the forward pass in progress (activation_checkpointing.buffered_parts).
  std::optional<activation::SavedBuffer> saved_buffer_;
  // True after one forward pass in which no block read parameters that it had not declared.
  bool reads_are_declared_ = false;
};

}  // namespace ds::engine
