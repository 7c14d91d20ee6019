#pragma once

// Resolves "auto" and the training flags from flags, model and world size, as the DeepSpeed
// integration of transformers does (integrations/deepspeed.py, goldens).
//
// Where that integration is inconsistent, with itself or with a command line without defaults, the
// README of this folder documents the behaviour here. A value from outside the file is sent to the
// ranks with the file's own keys, so the ranks need not resolve it again.

#include <span>
#include <vector>

#include "runtime/config/check/rule.h"
#include "runtime/config/keys/key.h"

namespace ds::config {

std::span<const Rule> AutoValueRules();

// The first of these rules: a flag fills its key where the file leaves it open (absent or "auto").
// A flag that contradicts the file is an error.
void FillFromFlags(RuleContext& context);

// Applies FillFromFlags, and checks the file's numbers that transformers compares with its own
// counts: the steps of the run and the samples of a step.
void CheckTrainerValues(RuleContext& context);

// A key that a given flag fills. Where `fills` is false, another rule derives the key, and it only
// has to agree with the flag.
struct FlagKey {
  Key key;
  bool fills = true;
  bool switches_off = false;  // sets the key, the "enabled" of a precision, to false
};
std::vector<FlagKey> KeysOfFlags(const TrainingFlags& flags);

// Returns the betas requested by the flags. A beta without a flag is taken from `betas`, an
// optimizer's, or is transformers' default if these are not a pair of numbers.
nlohmann::ordered_json BetasOfFlags(const TrainingFlags& flags,
                                    const nlohmann::ordered_json& betas);

}  // namespace ds::config
