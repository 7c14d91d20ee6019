#pragma once

// CheckPartitionRules: compares tensor_parallel.partition_config, the rules with which DeepSpeed's
// AutoTP shards weights by name, with the plan that shards them here (models::TensorPlan). A
// decoder's computation allows one way to shard each weight, so rules can only repeat it or ask for
// another model. Pure. Thread-safe.

#include <nlohmann/json_fwd.hpp>

#include "runtime/base/status.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::engine {

// `rules`: the value of tensor_parallel.partition_config, checked by CheckConfig, or null. `parts`:
// the number of tensor ranks. For each matrix of the model, the first rule of layer_specs that
// matches its name from the first letter, with or without ".weight", must agree with the plan:
// "column" shards by outputs, "row" by inputs, "skip" not at all. A given partition_dim must
// match the type in a weight [out, in]. Without use_default_specs, a layer's matrix that no rule
// matches is unsharded; if strict_mode is also set, every matrix must match a rule. The error names
// the key and the matrix.
Status CheckPartitionRules(const nlohmann::ordered_json& rules, const models::DecoderSpec& model,
                           int parts);

}  // namespace ds::engine
