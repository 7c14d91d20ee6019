#pragma once

// TranslateSamples: how the rows of a data set become samples, and the tokens of them that are
// learnt, as arguments of the example scripts (block_size) and of TRL's SFTTrainer say it.
//
// TRL without packing gives each row a sample and cuts off what is longer than max_length; with
// packing "bfd" it cuts, too, "bfd_split" splits, "wrapped" joins all rows to one stream.

#include "cli/translate/given_arguments.h"
#include "cli/translate/translation.h"

namespace ds::cli {

void TranslateSamples(GivenArguments* arguments, Translation* translation);

}  // namespace ds::cli
