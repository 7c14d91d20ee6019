#pragma once

// CheckExpertRules: the keys of expert_parallel by which DeepSpeed's AutoEP finds a model's experts
// and says how tokens are routed to them, held against what the model's family and its config.json
// say. Routes are part of what a model computes, so that a key can say the same, or something that
// would train another model. Pure; safe from any thread.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/base/status.h"
#include "runtime/config/expert_gate_config.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::engine {

// `section`: the user's expert_parallel, checked by CheckConfig, or null; `model_config`: what
// `model` was read from. OK where each key that is not at its default says what holds. Names may be
// those of the weights' file or those that transformers has for them in a model that is loaded. The
// error names the key, what it asks for and what the model says.
Status CheckExpertRules(const nlohmann::ordered_json& section,
                        const nlohmann::ordered_json& model_config,
                        const models::DecoderSpec& model);

// Makes of the model what the `moe` section of a ds_config asks for: its gate in the place of the
// model's own routing, a residual MLP next to the experts (models::AddResidualMlp).
// InvalidArgument, naming the key, where the section says another number of experts than the model
// has; where the gate's weights of a token would not be the model's: a gate of one expert a token
// weights it by its probability, one of several by shares that add up to 1; and where all tokens go
// through an expert already.
Status TakeMoeSection(const config::MoeConfig& section, models::DecoderSpec* model);

// Sets the coefficient of the experts' balance loss, as TRL's argument router_aux_loss_coef does:
// "" leaves the model's config.json its word, "auto" adds the loss with the coefficient of
// config.json where the model has one, a number adds it with this one, and 0 leaves it out.
// InvalidArgument for another text, and for a number above 0 where the model has no balance loss.
Status TakeBalance(const std::string& coefficient, models::DecoderSpec* model);

}  // namespace ds::engine
