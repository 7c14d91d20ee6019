#pragma once

// Patterns of OpenSSH (ssh_config(5), PATTERNS). Letters are compared as they are: callers lower
// them where case does not count. Pure.

#include <string>
#include <string_view>
#include <vector>

namespace ds::cli {

// In `pattern`, * matches any characters and ? one character.
bool MatchesPattern(std::string_view name, std::string_view pattern);

// Returns true if a pattern matches, and no pattern that is negated with "!".
bool MatchesPatterns(std::string_view name, const std::vector<std::string>& patterns);

// Splits at commas. Leaves out empty parts.
std::vector<std::string> SplitCommas(std::string_view text);

// Returns `text` with ASCII letters in lower case.
std::string Lowered(std::string_view text);

}  // namespace ds::cli
