#pragma once

// RunCommandLine finds the command in argv: launch flags first, then the word that names a command
// or a program.

#include <string>
#include <vector>

namespace ds::cli {

// Runs one dsrun command line (argv[0] included) and returns its exit status. Errors are printed on
// stderr as "dsrun: message".
int RunCommandLine(const std::vector<std::string>& command_line);

}  // namespace ds::cli
