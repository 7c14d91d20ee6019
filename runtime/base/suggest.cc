#include "runtime/base/suggest.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace ds {

int EditDistance(std::string_view a, std::string_view b) {
  const std::size_t columns = b.size() + 1;
  // Rows i-2, i-1 and i of the dynamic programme. Transpositions use row i-2.
  std::vector<int> before(columns), previous(columns), current(columns);
  for (std::size_t j = 0; j < columns; ++j) previous[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = static_cast<int>(i);
    for (std::size_t j = 1; j < columns; ++j) {
      const int substitution = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        current[j] = std::min(current[j], before[j - 2] + 1);
      }
    }
    before.swap(previous);
    previous.swap(current);
  }
  return previous[b.size()];
}

namespace {

std::vector<std::string_view> PartsOf(std::string_view name) {
  std::vector<std::string_view> parts;
  while (!name.empty()) {
    const std::size_t end = std::min(name.find_first_of("_-"), name.size());
    if (end > 0) parts.push_back(name.substr(0, end));
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return parts;
}

// Counts the parts of `candidate` that `word` omits; nullopt when `word` has a part that
// `candidate` lacks.
std::optional<int> CountOmittedParts(std::string_view word, std::string_view candidate) {
  const std::vector<std::string_view> named = PartsOf(word), all = PartsOf(candidate);
  const bool known = std::all_of(named.begin(), named.end(), [&](std::string_view part) {
    return std::find(all.begin(), all.end(), part) != all.end();
  });
  if (!known || named.empty() || all.size() < named.size()) return std::nullopt;
  return static_cast<int>(all.size() - named.size());
}

// Returns the maximum number of mistyped letters in a word. With more it is another word.
int MostTypos(std::string_view word) {
  const std::size_t letters = word.size() - std::min(word.find_first_not_of('-'), word.size());
  if (letters < 8) return 1;
  return letters < 16 ? 2 : 3;
}

}  // namespace

std::string Nearest(std::string_view word, std::span<const std::string> candidates) {
  return Nearest(word, candidates, MostTypos(word));
}

std::string Nearest(std::string_view word, std::span<const std::string> candidates,
                    int most_typos) {
  int best = most_typos + 1;
  std::string nearest;
  for (const std::string& candidate : candidates) {
    int distance = EditDistance(word, candidate);
    if (const auto left_out = CountOmittedParts(word, candidate)) {
      distance = std::min(distance, std::max(1, *left_out));
    }
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string FillMeaning(std::string_view text, std::string_view name, std::string_view value) {
  std::string filled(text);
  for (const auto& [pattern, filling] :
       {std::pair<std::string_view, std::string_view>{"{name}", name}, {"{}", value}}) {
    for (std::size_t at = filled.find(pattern); at != std::string::npos;
         at = filled.find(pattern, at + filling.size())) {
      filled.replace(at, pattern.size(), filling);
    }
  }
  return filled;
}

std::string DidYouMean(std::string_view word, std::span<const std::string> candidates) {
  const std::string nearest = Nearest(word, candidates);
  return nearest.empty() ? "" : "; did you mean '" + nearest + "'?";
}

}  // namespace ds
