#pragma once

// job.json keeps names and patterns of -x, never a value that was given behind one. Whoever resumes
// the job gives such values again; those of names alone come from his shell, as they did at first.
//
// Pure; safe from any thread.

#include <string>
#include <vector>

#include "cli/plan/rank_environment.h"
#include "runtime/base/status.h"

namespace ds::cli {

// The words of -x with kRedacted behind their '='.
std::vector<std::string> StoreExports(const std::vector<std::string>& words);

struct RenewedExports {
  std::vector<std::string> words;       // of what is stored: all but those that are given anew
  std::vector<std::string> from_shell;  // the names among them, whose values are this shell's
};

// Chooses what a resumed job takes of `stored`, where the command line has the words `given`. The
// error names every variable that had a value of its own and is not given again, or every one that
// is named and that this shell does not have.
StatusOr<RenewedExports> RenewExports(const std::vector<std::string>& stored,
                                      const std::vector<std::string>& given,
                                      const Environment& shell);

}  // namespace ds::cli
