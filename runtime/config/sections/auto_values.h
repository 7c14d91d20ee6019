#pragma once

// Resolves "auto", and what the flags of training say, as the DeepSpeed integration of transformers
// does (integrations/deepspeed.py, goldens), from flags, model and world size.
//
// Where that integration differs from itself or from a command line without defaults, the README of
// the folder says what is done here. A value that comes from outside the file goes to the ranks
// with the file's own keys, so that they need none of it again.

#include <span>
#include <vector>

#include "runtime/config/check/rule.h"
#include "runtime/config/keys/key.h"

namespace ds::config {

std::span<const Rule> AutoValueRules();

// The first of these rules: a flag fills its key where the file leaves it open (absent or "auto"),
// and contradicting the file is an error.
void FillFromFlags(RuleContext& context);

// The same, and the file's numbers that transformers holds against what it counts itself: the
// steps of the run and the samples of a step.
void AgreeWithTrainer(RuleContext& context);

// A key that a given flag fills, or only has to agree with: another rule derives it.
struct FlagKey {
  Key key;
  bool fills = true;
  bool switches_off = false;  // it sets the key, the "enabled" of a precision, to false
};
std::vector<FlagKey> KeysOfFlags(const TrainingFlags& flags);

// The betas that the flags ask for. The one without a flag is that of `betas`, an optimizer's, or
// transformers' default where these are no pair of numbers.
nlohmann::ordered_json BetasOfFlags(const TrainingFlags& flags,
                                    const nlohmann::ordered_json& betas);

}  // namespace ds::config
