#pragma once

// DtypePolicy: the dtype of each kind of tensor, as configured in the ds_config.

#include <c10/core/ScalarType.h>

#include <optional>

#include "runtime/config/ds_config.h"

namespace ds::precision {

struct DtypePolicy {
  c10::ScalarType parameter = c10::kFloat;  // parameters and activations
  c10::ScalarType gradient = c10::kFloat;   // accumulation of gradients over micro-batches
  c10::ScalarType reduction = c10::kFloat;  // reduction of gradients between ranks
  c10::ScalarType master = c10::kFloat;     // weights that the optimizer updates
  c10::ScalarType state = c10::kFloat;      // optimizer state other than master weights
  // The dtype of matrix products in the forward pass, if it differs from the operands'
  // (AutocastScope).
  std::optional<c10::ScalarType> autocast = {};

  // Returns whether the optimizer keeps master weights, because it does not update the parameters
  // directly.
  bool has_master_weights() const { return parameter != master; }
};

c10::ScalarType ToScalarType(config::DataType type);

// Converts the result of config::ChooseStateTypes to LibTorch's types. communication_data_type
// defaults to the parameters' type.
DtypePolicy MakeDtypePolicy(const config::DsConfig& config);

}  // namespace ds::precision
