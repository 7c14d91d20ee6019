#pragma once

// TrainedModel holds the model of an engine: the blocks and buffers of this rank's pipeline stage,
// their shards, and the optimizer of the shards. It tracks whether the states are in use elsewhere:
// offloaded to the host (DeepSpeedApi::offload_states) or gathered (WithGatheredParameters).
//
// Not thread-safe.

#include <cstdint>
#include <memory>

#include "runtime/base/status.h"
#include "runtime/engine/module_buffers.h"
#include "runtime/models/block.h"
#include "runtime/zero/optimizer/sharded_optimizer.h"
#include "runtime/zero/sharded_model.h"

namespace ds::engine {

struct TrainedModel {
  std::shared_ptr<BlockList> blocks;  // null if the model was given as a UnitList
  ModuleBuffers buffers;
  std::unique_ptr<zero::ShardedModel> sharded;
  std::unique_ptr<zero::ShardedOptimizer> optimizer;
  std::int64_t parameter_count = 0;  // of all stages
  bool states_offloaded = false;     // offloaded to the host
  bool gathered = false;             // within WithGatheredParameters

  // The units of a pipeline chunk.
  zero::UnitRange UnitsOf(int chunk) const;

  // Moves offloaded states back to the device. Call it before an operation that needs the model's
  // state. Fails while the body of WithGatheredParameters runs, because it would invalidate the
  // gathered parameters. Not collective.
  Status ReloadStates();
  Status CheckNotGathered() const;
  // Fails if the ranks' weights differ; called before weights are set.
  Status CheckWeightsAreEqual() const;
};

}  // namespace ds::engine
