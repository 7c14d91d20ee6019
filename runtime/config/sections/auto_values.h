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

// The keys that the given flags fill, or have to agree with.
std::vector<Key> KeysOfFlags(const TrainingFlags& flags);

}  // namespace ds::config
