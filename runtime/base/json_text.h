#pragma once

// JSON texts from outside: how deep they may be nested, and their errors in words for users.
//
// Threads: all functions are safe to call concurrently.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ds {

// Lists and objects may be in this many others: what copies or reads JSON recurses.
inline constexpr int kMostNestedJson = 100;

// The byte at which a text has the escape of half a surrogate pair (\ud83d without its other half),
// which is no character; nothing where all pairs are whole.
std::optional<std::size_t> FindLoneSurrogate(std::string_view json);

// Says why `json` is refused: a lone surrogate with its line and column, else `error`, the parser's
// words.
std::string DescribeJsonError(std::string_view json, std::string_view error);

}  // namespace ds
