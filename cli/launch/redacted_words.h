#pragma once

// RedactedWords: the words of a command line as job.json keeps them, without secrets, and without
// the values of -x, whatever they are. A command line that was copied from there is refused, as its
// program would take kRedacted for the secret. Where kRedacted hides nothing it is a word like any
// other.
//
// Pure; safe from any thread.

#include <string>
#include <vector>

#include "cli/flags/launch_flags.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct RedactedWords {
  std::vector<std::string> words;
  std::vector<std::size_t> places;  // of those that are not as they were given
};

// `values` is where -x has its values.
RedactedWords HideSecrets(const std::vector<std::string>& words,
                          const std::vector<ValuePlace>& values = {});

// The same of a command line that the user has typed. The error names every kRedacted that stands
// where HideSecrets puts one.
StatusOr<RedactedWords> RedactCommandLine(const std::vector<std::string>& words,
                                          const std::vector<ValuePlace>& values);

}  // namespace ds::cli
