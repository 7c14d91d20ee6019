#pragma once

// Finds the known name that is nearest to a misspelt one: "did you mean …?".

#include <span>
#include <string>
#include <string_view>

namespace ds {

// Levenshtein distance with adjacent transpositions (optimal string alignment).
int EditDistance(std::string_view a, std::string_view b);

// The candidate nearest to `word` if it is near enough to be meant, else "": one wrong letter (two
// from 8 letters on, three from 16), or more parts ("warmup_steps" for "warmup_num_steps"). Ties go
// to the earlier one. A word of another program's is no misspelling: tables of meanings answer
// those.
std::string Nearest(std::string_view word, std::span<const std::string> candidates);

// "; did you mean 'x'?" or "".
std::string DidYouMean(std::string_view word, std::span<const std::string> candidates);

// Fills in what a table of foreign names says to write: {name} is the name that was given, {} its
// value.
std::string FillMeaning(std::string_view text, std::string_view name, std::string_view value);

}  // namespace ds
