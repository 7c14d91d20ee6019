#pragma once

// Flags of other training programs after `train` and `resume`: transformers' Trainer and its
// scripts, TRL, PEFT, Megatron-LM, DeepSpeed-Chat, torchtitan. A flag with exactly the same meaning
// as one of dsrun's is accepted. Any other is rejected with the equivalent settings and the
// translated value. Flags are matched by meaning, never by spelling.
//
// Pure; safe from any thread.

#include <string>

#include "cli/flags/flag_parser.h"

namespace ds::cli {

// Makes a parser with AddTrainFlags accept these flags or report the alternative.
void TakeForeignTrainFlags(FlagParser* parser);

// Returns the alternative to the flag `name` ('_' between words, no dashes) with this value ("" for
// none). Returns "" for a name that no such program has.
std::string ExplainForeignTrainFlag(const std::string& name, const std::string& value);

}  // namespace ds::cli
