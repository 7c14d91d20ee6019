#pragma once

// RedactedWords: the words of a command line as stored in job.json, without secrets and without any
// value of -x. A command line copied from there is rejected, because its program would take
// kRedacted for the secret. If kRedacted hides nothing, it is an ordinary word.
//
// Pure; safe from any thread.

#include <string>
#include <vector>

#include "cli/flags/launch_flags.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct RedactedWords {
  std::vector<std::string> words;
  std::vector<std::size_t> places;  // indices of the changed words
};

// `values` locates the values of -x.
RedactedWords HideSecrets(const std::vector<std::string>& words,
                          const std::vector<ValuePlace>& values = {});

// Does the same for a command line that the user has typed. Fails if kRedacted stands in a position
// that HideSecrets would redact, and names each one.
StatusOr<RedactedWords> RedactCommandLine(const std::vector<std::string>& words,
                                          const std::vector<ValuePlace>& values);

}  // namespace ds::cli
