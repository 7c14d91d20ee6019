#pragma once

// Finds the known name that is nearest to a misspelt one: "did you mean …?".

#include <span>
#include <string>
#include <string_view>

namespace ds {

// Levenshtein distance with adjacent transpositions (optimal string alignment).
int EditDistance(std::string_view a, std::string_view b);

// The candidate nearest to `word` if it is near enough to be meant, else "": by letters, or because
// it only has more parts ("warmup_steps" for "warmup_num_steps"). Ties go to the earlier one.
std::string Nearest(std::string_view word, std::span<const std::string> candidates);

// "; did you mean 'x'?" or "".
std::string DidYouMean(std::string_view word, std::span<const std::string> candidates);

}  // namespace ds
