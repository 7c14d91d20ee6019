#pragma once

// Nearest finds the known name closest to a misspelt one, for "did you mean ...?" messages.

#include <span>
#include <string>
#include <string_view>

namespace ds {

// Returns the Levenshtein distance with adjacent transpositions (optimal string alignment).
int EditDistance(std::string_view a, std::string_view b);

// Returns the candidate nearest to `word`, or "" when none is close enough. Close means one wrong
// letter (two from 8 letters on, three from 16), or missing parts ("warmup_steps" for
// "warmup_num_steps"). The earlier candidate wins a tie. Does not translate names of other
// programs: tables of meanings answer those.
std::string Nearest(std::string_view word, std::span<const std::string> candidates);
// The same with another limit of wrong letters, for candidates so few that a worse slip still means
// one of them.
std::string Nearest(std::string_view word, std::span<const std::string> candidates, int most_typos);

// Returns "; did you mean 'x'?" or "".
std::string DidYouMean(std::string_view word, std::span<const std::string> candidates);

// Fills in an entry of a table of foreign names: {name} becomes the given name, {} its value.
std::string FillMeaning(std::string_view text, std::string_view name, std::string_view value);

}  // namespace ds
