#pragma once

// Checks for JSON texts from outside: the maximum nesting depth, and unpaired surrogates.
//
// Thread-safe.

#include <cstddef>
#include <optional>
#include <string_view>

namespace ds {

// Maximum nesting depth of lists and objects. It bounds the recursion of code that copies or reads
// JSON.
inline constexpr int kMostNestedJson = 100;

// Returns the offset of the first escape that is half a surrogate pair (\ud83d without its other
// half), which stands for no character. Returns nullopt when all pairs are complete.
std::optional<std::size_t> FindLoneSurrogate(std::string_view json);

}  // namespace ds
