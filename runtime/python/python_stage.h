#pragma once

// PythonStage runs the layers of a pipeline stage, a module of Python, for the engine's executor.
//
// Functions of Python take the GIL for their calls; the thread that drives the engine must not hold
// it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "runtime/engine/chunk_runner.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/unit_passes.h"

namespace ds::python {

using StageTensors = std::map<std::string, at::Tensor>;
// Takes the tensors of the previous stage, none on the first one, and returns those for the next
// stage; on the last stage a scalar, too, the loss.
using RunStage =
    std::function<std::pair<StageTensors, std::optional<at::Tensor>>(const StageTensors& received)>;
// Reads the next micro-batch, which Python keeps, and returns its number of samples.
using ReadBatch = std::function<std::int64_t()>;

class PythonStage : public engine::ChunkRunner {
 public:
  // `passes` and `run` must outlive this object.
  PythonStage(UnitPasses& passes, const RunStage& run) : passes_(passes), run_(run) {}

  Bundle RunChunk(engine::TrainedModel& model, const engine::RankTopology& topology, Bundle bundle,
                  int chunk) override;

 private:
  UnitPasses& passes_;
  const RunStage& run_;
};

// Returns micro-batches with a tensor of their size only.
engine::BatchSource MakeBatchSource(const ReadBatch& read);

}  // namespace ds::python
