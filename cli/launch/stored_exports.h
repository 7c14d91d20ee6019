#pragma once

// StoredExports: the words of -x as job.json keeps them, names and patterns, never a value that was
// given behind one. The user gives such values again when he resumes the job; those of names alone
// come from his shell, as they did at first.
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
  // The names that had values. None: a dsrun that did not tell has written the file. It either put
  // kRedacted behind the '=' of a word, or kept the name alone of all.
  std::optional<std::vector<std::string>> had_values;
};

// Takes the words of -x apart.
StoredExports StoreExports(const std::vector<std::string>& words);

struct RenewedExports {
  std::vector<std::string> words;       // of what is stored: all but those that are given anew
  std::vector<std::string> from_shell;  // the names among them, whose values are this shell's
  bool may_have_had_values = false;     // that is these, as far as job.json says
};

// Chooses what a resumed job takes of `stored`, where the command line has the words `given`. The
// error names every variable that had a value of its own and is not given again, or every one that
// is named and that this shell does not have.
StatusOr<RenewedExports> RenewExports(const StoredExports& stored,
                                      const std::vector<std::string>& given,
                                      const Environment& shell);

}  // namespace ds::cli
