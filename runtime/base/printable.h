#pragma once

// Printable: text from elsewhere (other hosts, libraries, files) as it may be shown on a terminal.
//
// Pure; safe from any thread.

#include <string>
#include <string_view>

namespace ds {

// `text` with every control character of C0, C1 and DEL, every byte that is no UTF-8, and what
// turns the direction of writing, in the words of C ("\x1b", "\u202e"): nothing of it can move the
// cursor, rename the window or hide what stands before it. \n and \t stay. Text without such is
// unchanged, a backslash included.
std::string Printable(std::string_view text);

}  // namespace ds
