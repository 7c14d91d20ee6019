#pragma once

// WrapText breaks text into lines for the help and for the pages of the manual.

#include <cstddef>
#include <string>
#include <string_view>

namespace ds::cli {

inline constexpr std::size_t kHelpColumns = 80;

// Breaks the lines of `text` at blanks into lines of at most `columns` bytes. A word that is longer
// stays whole. The lines that continue another one begin with `indent` blanks.
std::string WrapText(std::string_view text, std::size_t columns, std::size_t indent = 0);

}  // namespace ds::cli
