#pragma once

// Trains a golden folder as dsrank does (config, data, weights, engine), with ranks as threads.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"

namespace ds::numerics {

struct GoldenRun {
  std::string family;     // a folder of tests/numerics/goldens
  std::string adapter;    // a folder of its lora, which is trained in the family's place
  std::string quantized;  // the format of the model below it; empty: as it is
  int world_size = 1;
  int tensor = 1, pipeline = 1;  // of these ranks, who have one model
  int stage = 0;
  std::int64_t global_batch = 8;  // samples per optimizer step
  std::int64_t accumulation = 1;  // micro-batches per rank and step
  std::int64_t steps = 20;
  bool bf16 = false;
  bool clips = true;
};

struct GoldenRunResult {
  std::vector<StepResult> steps;  // the same on every rank, which is checked
  // After the last step; of a quantised weight what its bytes give back.
  std::map<std::string, at::Tensor> parameters;
};

GoldenRunResult Train(const GoldenRun& run);

// tests/numerics/goldens/FAMILY.json's run of that global batch: "losses", "grad_norms".
nlohmann::json GoldenOf(const std::string& family, std::int64_t global_batch);

}  // namespace ds::numerics
