#pragma once

// Patterns of file names: *, ? and [a-z], within one part of a path each.

#include <filesystem>
#include <string>
#include <vector>

namespace ds {

// Tells a pattern from a plain path, by its letters.
bool IsGlob(const std::string& text);

// Lists what the pattern matches, sorted; hidden files only where it begins their name with a dot.
// Empty where it matches nothing, and of a plain path.
std::vector<std::filesystem::path> ExpandGlob(const std::string& pattern);

}  // namespace ds
