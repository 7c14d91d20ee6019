#pragma once

// CheckPartitionRules: tensor_parallel.partition_config, the rules by which DeepSpeed's AutoTP cuts
// weights by their names, held against the plan by which they are cut here (models::TensorPlan).
// Each weight has one way to be cut, which follows from what a decoder computes, so that rules can
// say the same, or something that would train another model. Pure; safe from any thread.

#include <nlohmann/json_fwd.hpp>

#include "runtime/base/status.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::engine {

// `rules`: the value of tensor_parallel.partition_config, checked by CheckConfig, or null. `parts`:
// how many tensor ranks there are. OK where for each matrix of the model the first rule of
// layer_specs that matches its name, from its first letter, with or without ".weight", says how it
// is cut here: "column" by its outputs, "row" by its inputs, "skip" not at all. Without
// partition_dim, if given, is that of the type in a weight [out, in]. Without
// use_default_specs a layer's matrix that no rule matches is not cut, and with strict_mode, too,
// there must be none. The error names the key and the matrix.
Status CheckPartitionRules(const nlohmann::ordered_json& rules, const models::DecoderSpec& model,
                           int parts);

}  // namespace ds::engine
