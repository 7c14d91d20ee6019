#pragma once

// JSON texts from outside: how deep they may be nested, and halves of characters.
//
// Threads: all functions are safe to call concurrently.

#include <cstddef>
#include <optional>
#include <string_view>

namespace ds {

// Lists and objects may be in this many others: what copies or reads JSON recurses.
inline constexpr int kMostNestedJson = 100;

// The byte at which a text has the escape of half a surrogate pair (\ud83d without its other half),
// which is no character; nothing where all pairs are whole.
std::optional<std::size_t> FindLoneSurrogate(std::string_view json);

}  // namespace ds
