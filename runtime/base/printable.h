#pragma once

// Printable makes text from outside (other hosts, libraries, files) safe to show on a terminal.
//
// Pure; thread-safe.

#include <string>
#include <string_view>

namespace ds {

// Returns `text` with unsafe parts as C escapes ("\x1b", "\u202e"): C0 and C1 control characters,
// DEL, bytes that are not UTF-8, and characters that change the writing direction. The result
// cannot move the cursor, set the window title or hide earlier text. \n and \t are kept. Text
// without unsafe parts is unchanged, backslashes included.
std::string Printable(std::string_view text);

}  // namespace ds
