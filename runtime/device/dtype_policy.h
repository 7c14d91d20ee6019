#pragma once

// DtypePolicy: the dtype of each kind of number, as the ds_config asks.

#include <c10/core/ScalarType.h>

#include <optional>

#include "runtime/config/ds_config.h"

namespace ds::precision {

struct DtypePolicy {
  c10::ScalarType parameter = c10::kFloat;  // parameters and activations
  c10::ScalarType gradient = c10::kFloat;   // where gradients are accumulated over micro-batches
  c10::ScalarType reduction = c10::kFloat;  // in which gradients travel between ranks
  c10::ScalarType master = c10::kFloat;     // of the weights that the optimizer updates
  c10::ScalarType state = c10::kFloat;      // of what the optimizer keeps beside them
  // The dtype of matrix products in the forward pass, where it is not the operands'
  // (AutocastScope).
  std::optional<c10::ScalarType> autocast = {};

  // An optimizer that does not update the parameters themselves keeps weights of its own.
  bool has_master_weights() const { return parameter != master; }
};

c10::ScalarType ToScalarType(config::DataType type);

// config::ChooseStateTypes in LibTorch's types. communication_data_type defaults to the
// parameters'.
DtypePolicy MakeDtypePolicy(const config::DsConfig& config);

}  // namespace ds::precision
