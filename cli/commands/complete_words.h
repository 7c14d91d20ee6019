#pragma once

// CompleteWords: what may stand where a user of a shell is typing.
//
// Threads: one at a time (see command_flags.h).

#include <string>
#include <utility>
#include <vector>

namespace ds::cli {

struct Completion {
  // The shell adds these by itself.
  enum class More { kNothing, kFiles, kFolders, kProgram };
  More more = More::kNothing;
  std::vector<std::pair<std::string, std::string>> words;  // each with what it means
};

// `words` are those behind "dsrun"; the last one is being typed, and may be empty. A lone "="
// counts as part of the flag in front of it: that is how bash hands it over.
Completion CompleteWords(const std::vector<std::string>& words);

}  // namespace ds::cli
