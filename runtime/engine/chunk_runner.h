#pragma once

// ChunkRunner runs the forward pass of a chunk: the full model, or one of the parts of it that a
// pipeline stage has. Executor runs the passes of a step through it. BlockRunner runs blocks; a
// model of units brings a runner of its own.

#include "runtime/models/bundle.h"

namespace ds::engine {

struct RankTopology;
struct TrainedModel;

class ChunkRunner {
 public:
  virtual ~ChunkRunner() = default;

  // Takes the bundle of the previous chunk, or of the micro-batch, and returns the bundle for the
  // next one; the last chunk sets the loss. Collective of the ranks that share the model's shards.
  virtual models::Bundle RunChunk(TrainedModel& model, const RankTopology& topology,
                                  models::Bundle bundle, int chunk) = 0;
};

}  // namespace ds::engine
