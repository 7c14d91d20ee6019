#pragma once

// TranslateSamples converts the arguments that define samples and their trained tokens: block_size
// of the example scripts, and the arguments of TRL's SFTTrainer.
//
// TRL without packing makes each row a sample and truncates it to max_length. Packing "bfd"
// truncates, too, "bfd_split" splits, and "wrapped" joins all rows to one stream.

#include "cli/translate/given_arguments.h"
#include "cli/translate/translation.h"

namespace ds::cli {

void TranslateSamples(GivenArguments* arguments, Translation* translation);

}  // namespace ds::cli
