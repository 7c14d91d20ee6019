#pragma once

// StoredExports: the words of -x as stored in job.json. It stores names and patterns, never a
// value. When the user resumes the job, he gives those values again; values of bare names come from
// his shell, as at the first start.
//
// Pure; safe from any thread.

#include <optional>
#include <string>
#include <vector>

#include "cli/launch/rank_environment.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct StoredExports {
  std::vector<std::string> words;  // names and patterns
  // The names that had values. Unset if an older dsrun wrote the file without this list. Such a
  // file either has kRedacted after the '=' of a word, or only the names.
  std::optional<std::vector<std::string>> had_values;
};

// Splits the words of -x into names and values, and drops the values.
StoredExports StoreExports(const std::vector<std::string>& words);

struct RenewedExports {
  std::vector<std::string> words;       // the stored words that are not given again
  std::vector<std::string> from_shell;  // the bare names among them; values come from this shell
  bool may_have_had_values = false;     // job.json does not say whether `from_shell` had values
};

// Chooses the words of `stored` that a resumed job keeps if the command line has the words `given`.
// The error names every variable that had a value of its own and is not given again, or every bare
// name that is not set in this shell.
StatusOr<RenewedExports> RenewExports(const StoredExports& stored,
                                      const std::vector<std::string>& given,
                                      const Environment& shell);

}  // namespace ds::cli
