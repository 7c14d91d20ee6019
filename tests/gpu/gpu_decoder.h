#pragma once

// A decoder of a real family trained by one rank on a GPU, from a batch that lies there.

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/engine/engine_components.h"
#include "runtime/models/bundle.h"

namespace ds::tests {

struct GpuDecoder {
  std::int64_t layers = 4, width = 256, heads = 4, vocabulary = 1000, tokens = 64, samples = 4;
  int stage = 0;
  bool bf16 = true;
  bool offloads_parameters = false, offloads_optimizer = false, updates_in_backward = false;
  std::int64_t accumulation = 1;
  // An update's coefficients do not change with its number.
  config::AdamConfig optimizer = {.bias_correction = false};
};

// `world` outlives it. A GPT-2 without dropout.
std::unique_ptr<engine::EngineComponents> BuildDecoder(const GpuDecoder& run,
                                                       comm::Communicator& world);

// A micro-batch on the world's device, whose labels have been measured.
models::Bundle MakeBatch(const GpuDecoder& run, const comm::Communicator& world);

}  // namespace ds::tests
