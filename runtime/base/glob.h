#pragma once

// File name patterns with *, ? and [a-z]. Each of these matches within one component of a path.

#include <filesystem>
#include <string>
#include <vector>

namespace ds {

// Returns true when `text` contains *, ? or [.
bool IsGlob(const std::string& text);

// Returns the sorted paths that match `pattern`. A hidden file matches only when its part of the
// pattern starts with a dot. Returns an empty list when nothing matches or `pattern` is a plain
// path.
std::vector<std::filesystem::path> ExpandGlob(const std::string& pattern);

}  // namespace ds
