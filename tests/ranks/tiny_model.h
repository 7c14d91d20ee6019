#pragma once

// A model with everything that is awkward for ZeRO: odd sizes, a tied weight, a frozen parameter
// and one that never gets a gradient.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/engine/executor.h"
#include "runtime/optim/groups/parameter_groups.h"

namespace ds::tests {

struct TinyShape {
  std::int64_t vocabulary = 11;
  std::int64_t width = 5;
  std::int64_t layers = 3;
};

// Blocks: an embedding, layers (w, b trained; scale frozen; unused never read), a head tied to the
// embedding. A bundle's extras["poison"], if there, is multiplied into the first block's output;
// with extras["only_layer"] the other layers leave what they get as it is.
std::shared_ptr<BlockList> MakeTinyModel(const TinyShape& shape, const at::TensorOptions& options);

enum class Precision {
  kFp32,
  kBf16,            // master weights and state in fp32
  kBf16State,       // master weights in fp32
  kBf16Masters,     // state in fp32
  kBf16Throughout,  // nothing in fp32
};

struct TinyRun {
  int stage = 0;
  std::int64_t accumulation = 1;
  double gradient_clipping = 0.05;  // well below the model's norms: it clips
  Precision precision = Precision::kFp32;
  config::ZeroConfig zero = {};  // but for the stage
  config::OptimizerAlgorithm optimizer;
  TinyShape shape;
  optim::ParameterGrouper groups = optim::OneGroup;
  config::RecomputeChoice recompute = {};
  std::optional<bool> decides_on_device = {};  // EngineOptions

  at::ScalarType dtype() const {
    return precision == Precision::kFp32 ? at::kFloat : at::kBFloat16;
  }
};

config::DsConfig TinyConfig(const TinyRun& run);
std::unique_ptr<Engine> MakeTinyEngine(const TinyRun& run, comm::Communicator& world,
                                       device::MemoryLedger* ledger = nullptr);

// On the world's device: this rank's part of micro-batch `micro_batch`: 24 samples per step over
// all ranks and micro-batches, the same ones however they are split. Requires that 24 splits
// evenly.
Bundle TinyBatch(const TinyRun& run, const comm::Communicator& world, std::int64_t micro_batch);

// Forward and backward of TinyBatch(run, ., micro_batch).
void RunMicroBatch(Engine& engine, const TinyRun& run, std::int64_t micro_batch);

// Trains `steps` steps from where the engine stands.
std::vector<StepResult> TrainTiny(Engine& engine, const TinyRun& run, int steps);

// On rank 0; empty elsewhere. Collective.
std::map<std::string, at::Tensor> ExportAll(Engine& engine);

}  // namespace ds::tests
