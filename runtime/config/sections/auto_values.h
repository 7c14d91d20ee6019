#pragma once

// What "auto" stands for, and what the flags of training say: resolved as the DeepSpeed integration
// of transformers does (integrations/deepspeed.py, goldens), from flags, model and world size.
//
// Where that integration differs from itself or from a command line without defaults, the README of
// the folder says what is done here. A value that comes from outside the file goes to the ranks
// with the file's own keys, so that they need none of it again.

#include "runtime/config/rules.h"

namespace ds::config {

// A flag fills its key where the file leaves it open (absent or "auto"), and contradicting the file
// is an error.
void FlagsFillOrAgree(RuleContext& context);

// The keys whose "auto" needs more than the file.
void AutoFollowsTransformers(RuleContext& context);

}  // namespace ds::config
