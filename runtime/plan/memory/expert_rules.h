#pragma once

// CheckExpertRules: compares the keys of expert_parallel, with which DeepSpeed's AutoEP finds a
// model's experts and routes tokens, with the model's family and its config.json. Routes are part
// of the model's computation, so a key can only repeat them or ask for another model. Pure.
// Thread-safe.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/base/status.h"
#include "runtime/config/expert_gate_config.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::engine {

// `section`: the user's expert_parallel, checked by CheckConfig, or null. `model_config`: the
// source of `model`. OK if each key with a non-default value agrees with the model. Names may be
// those in the weights' file, or transformers' names in a loaded model. The error names the key,
// its value and the model's.
Status CheckExpertRules(const nlohmann::ordered_json& section,
                        const nlohmann::ordered_json& model_config,
                        const models::DecoderSpec& model);

// Applies the `moe` section of a ds_config to the model: its gate replaces the model's own routing,
// and a residual MLP is added to the experts (models::AddResidualMlp). InvalidArgument, naming the
// key, if the section has another number of experts than the model; if the model already has a
// shared expert; or if the gate would weight a token differently from the model. A gate with one
// expert per token weights it by its probability; one with several uses shares that sum to 1.
Status TakeMoeSection(const config::MoeConfig& section, models::DecoderSpec* model);

// Sets the coefficient of the expert balance loss, like TRL's argument router_aux_loss_coef. ""
// keeps the setting of config.json. "auto" adds the loss with the coefficient of config.json, if
// the model has one. A number adds it with this coefficient; 0 removes it. InvalidArgument for
// other text, and for a number above 0 if the model has no balance loss.
Status TakeBalance(const std::string& coefficient, models::DecoderSpec* model);

}  // namespace ds::engine
