#pragma once

// The manual page, dsrun(1), made of the command table and of what the parsers take.
//
// Threads: one at a time (see command_flags.h).

#include <string>

namespace ds::cli {

// In the language of man(7).
std::string ManualPage();

}  // namespace ds::cli
