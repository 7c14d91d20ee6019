#include "runtime/tokenizer/text/byte_trie.h"

#include <algorithm>
#include <deque>

namespace ds::tokenizer {
namespace {

constexpr std::int32_t kRootParent = 0x7FFFFFFF;  // the root is not a child, and not free

}  // namespace

struct ByteTrie::Range {
  std::size_t begin, end;  // of the keys
  std::size_t depth;       // length of their common prefix
  std::int32_t node;
};

ByteTrie::ByteTrie(std::vector<std::pair<std::string, std::uint32_t>> keys) {
  std::stable_sort(keys.begin(), keys.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  nodes_.resize(512);
  nodes_[0].parent = kRootParent;
  std::deque<Range> open{{0, keys.size(), 0, 0}};
  std::vector<unsigned char> labels;
  for (; !open.empty(); open.pop_front()) {
    Range range = open.front();
    while (range.begin < range.end && keys[range.begin].first.size() == range.depth) {
      if (range.depth > 0) {
        nodes_[static_cast<std::size_t>(range.node)].value = keys[range.begin].second;
      }
      ++range.begin;
    }
    if (range.begin == range.end) continue;
    labels.clear();
    for (std::size_t i = range.begin; i < range.end; ++i) {
      const auto label = static_cast<unsigned char>(keys[i].first[range.depth]);
      if (labels.empty() || labels.back() != label) labels.push_back(label);
    }
    const std::int32_t base = FindBase(labels);
    nodes_[static_cast<std::size_t>(range.node)].base = base;
    for (std::size_t i = range.begin; i < range.end;) {
      const auto label = static_cast<unsigned char>(keys[i].first[range.depth]);
      std::size_t end = i;
      while (end < range.end && static_cast<unsigned char>(keys[end].first[range.depth]) == label) {
        ++end;
      }
      const std::int32_t child = base + label + 1;
      nodes_[static_cast<std::size_t>(child)].parent = range.node;
      open.push_back({i, end, range.depth + 1, child});
      i = end;
    }
  }
}

// Returns the first base with a free node for the child of every label.
std::int32_t ByteTrie::FindBase(const std::vector<unsigned char>& labels) {
  while (first_free_ < nodes_.size() && nodes_[first_free_].parent >= 0) ++first_free_;
  std::size_t tried = 0;
  for (std::size_t first = first_free_;; ++first) {
    if (first + 257 >= nodes_.size()) nodes_.resize(2 * nodes_.size());
    if (nodes_[first].parent >= 0) continue;
    const std::ptrdiff_t base = static_cast<std::ptrdiff_t>(first) - labels.front() - 1;
    const bool fits = std::all_of(labels.begin(), labels.end(), [&](unsigned char label) {
      return nodes_[static_cast<std::size_t>(base + label + 1)].parent < 0;
    });
    if (fits) return static_cast<std::int32_t>(base);
    // Skips crowded regions, since the search would otherwise take longer and longer.
    if (++tried > 64) first_free_ = first;
  }
}

}  // namespace ds::tokenizer
