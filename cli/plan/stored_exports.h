#pragma once

// job.json keeps names and patterns of -x, never a value. Whoever resumes the job has the
// values in his shell, or gives them again.
//
// Pure; safe from any thread.

#include <string>
#include <vector>

#include "cli/plan/rank_environment.h"
#include "runtime/base/status.h"

namespace ds::cli {

// The words of -x without what stands behind their '='.
std::vector<std::string> NameExports(const std::vector<std::string>& words);

// A command line in which the values of these words of -x are hidden (kRedacted). What a program is
// given under the same name stays.
std::vector<std::string> HideExports(std::vector<std::string> command_line,
                                     const std::vector<std::string>& words);

struct RenewedExports {
  std::vector<std::string> words;       // of what is stored: all but those that are given anew
  std::vector<std::string> from_shell;  // the names among them, whose values are this shell's
};

// Chooses what a resumed job takes of `stored`, where the command line has the words `given`. The
// error names every variable that neither the shell nor the command line has.
StatusOr<RenewedExports> RenewExports(const std::vector<std::string>& stored,
                                      const std::vector<std::string>& given,
                                      const Environment& shell);

}  // namespace ds::cli
