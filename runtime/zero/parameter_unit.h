#pragma once

// ParameterUnit describes the parameters of one block of a model to ZeRO, which gathers, releases
// and reduces them together.

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/placement.h"
#include "runtime/optim/kernels/optimizer_slice.h"

namespace ds::zero {

struct NamedParameter {
  std::string name;  // unique in the model
  at::Tensor tensor;
  checkpoint::Placement placement;  // of `tensor` in the model, before ZeRO shards it
  optim::ParameterGroup group = {};
  // The dtype in which its gradient is reduced, if it is not the job's (Context::reduction).
  std::optional<at::ScalarType> reduction = {};
  bool sparse_rows = false;  // an embedding table: most rows of its gradient are zero
  // Allows quantization. The context then decides (Context::quantized_weights and the fields after
  // it) which weights and gradients are sent, and which frozen weights are stored, quantized. Set
  // for matrices, because their elements have similar magnitudes; not for biases or norms.
  bool rounded = false;
};

struct ParameterUnit {
  std::string name;
  std::vector<NamedParameter> parameters;
  // Indices of earlier units with parameters that this unit reads, too (tied weights).
  std::vector<int> also_reads;
  // False if the unit's backward pass needs no parameter values, neither the unit's nor the ones in
  // `also_reads`. ZeRO then does not gather them for it.
  bool backward_reads = true;
};

}  // namespace ds::zero
