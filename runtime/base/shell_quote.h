#pragma once

// Quoting of words for a POSIX shell: for commands that a user copies from a message, and for
// scripts sent to a host. Pure.

#include <string>
#include <string_view>
#include <vector>

namespace ds {

// Returns `text` as one shell word: unchanged if no character is special to a shell, otherwise in
// single quotes.
std::string ShellQuote(std::string_view text);

// Returns the quoted words, separated by blanks.
std::string ShellLine(const std::vector<std::string>& words);

}  // namespace ds
