#pragma once

// TranslateDeepspeedWords: a command line of the `deepspeed` launcher (0.19) as one of dsrun. What
// each flag means here says dsrun's own parser of launch flags, which knows DeepSpeed's names.
// Pure.

#include <string>
#include <vector>

#include "cli/translate/translation.h"
#include "runtime/base/status.h"

namespace ds::cli {

// `words` begin behind "deepspeed". An error when there is no script, or a flag that is none of
// DeepSpeed's.
StatusOr<Translation> TranslateDeepspeedWords(const std::vector<std::string>& words);

}  // namespace ds::cli
