#pragma once

// Words as a POSIX shell reads them: for commands that a user copies from a message, and for
// scripts that are sent to a host. Pure.

#include <string>
#include <string_view>
#include <vector>

namespace ds {

// `text` as one word: as it is when no character of it means anything to a shell, else in single
// quotes.
std::string ShellQuote(std::string_view text);

// The words, quoted, with blanks between them.
std::string ShellLine(const std::vector<std::string>& words);

}  // namespace ds
