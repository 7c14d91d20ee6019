#pragma once

// CoverPairs: few of many cases that have every pair of traits which any of them has (all-pairs
// testing), chosen greedily. Deterministic.

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ds::testing {

using Traits = std::vector<std::string>;  // of a case, each of them once

inline std::set<std::pair<std::string, std::string>> PairsOf(const Traits& traits) {
  std::set<std::pair<std::string, std::string>> pairs;
  for (std::size_t i = 0; i < traits.size(); ++i) {
    for (std::size_t j = i + 1; j < traits.size(); ++j) pairs.emplace(traits[i], traits[j]);
  }
  return pairs;
}

// Returns the places of the chosen cases. Traits of a kind have the same place in all cases.
inline std::vector<std::size_t> CoverPairs(const std::vector<Traits>& cases) {
  std::vector<std::set<std::pair<std::string, std::string>>> pairs;
  std::set<std::pair<std::string, std::string>> open;
  for (const Traits& traits : cases) {
    pairs.push_back(PairsOf(traits));
    open.insert(pairs.back().begin(), pairs.back().end());
  }
  std::vector<std::size_t> chosen;
  while (!open.empty()) {
    std::size_t best = 0, most = 0;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      std::size_t covered = 0;
      for (const auto& pair : pairs[i]) covered += open.count(pair);
      if (covered <= most) continue;
      most = covered;
      best = i;
    }
    for (const auto& pair : pairs[best]) open.erase(pair);
    chosen.push_back(best);
  }
  return chosen;
}

// Draws `cases` cases with `draw` for each of so many covers, and calls visit(case, its traits) for
// the chosen ones, until it returns false.
template <typename Draw, typename Describe, typename Visit>
void VisitCovers(int covers, int cases, Draw draw, Describe describe, Visit visit) {
  for (int cover = 0; cover < covers; ++cover) {
    std::vector<decltype(draw())> drawn;
    std::vector<Traits> traits;
    for (int i = 0; i < cases; ++i) {
      drawn.push_back(draw());
      traits.push_back(describe(drawn.back()));
    }
    for (const std::size_t chosen : CoverPairs(traits)) {
      if (!visit(drawn[chosen], traits[chosen])) return;
    }
  }
}

}  // namespace ds::testing
