#pragma once

// Flags of other training programs (transformers' Trainer and its scripts, TRL, PEFT, Megatron-LM,
// DeepSpeed-Chat, torchtitan) as their users type them behind `train` and `resume`: one that means
// exactly what a flag of ours does is taken as that, another is refused with the way to the same
// end and the value translated. By meaning, never by spelling.
//
// Pure; safe from any thread.

#include <string>

#include "cli/flags/flag_parser.h"

namespace ds::cli {

// Makes the parser of a command that has AddTrainFlags take them, or say what to do instead.
void TakeForeignTrainFlags(FlagParser* parser);

// Says what to do instead of the flag `name` ('_' between words, no dashes) with this value ("" for
// none); "" of names that no such program has.
std::string ExplainForeignTrainFlag(const std::string& name, const std::string& value);

}  // namespace ds::cli
