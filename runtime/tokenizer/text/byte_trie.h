#pragma once

// ByteTrie finds all of its keys that a text begins with; a double array (Aoe 1989).
//
// Thread-safe: const functions may be called concurrently.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ds::tokenizer {

class ByteTrie {
 public:
  // Builds the trie of keys with values; of equal keys the last one counts. Empty keys are ignored.
  explicit ByteTrie(std::vector<std::pair<std::string, std::uint32_t>> keys = {});

  // Calls use(length, value) for every key that `text` begins with, the shortest first.
  template <typename Use>
  void ForEachPrefix(std::string_view text, Use use) const {
    std::int32_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = Child(node, static_cast<unsigned char>(text[i]));
      if (node < 0) return;
      const Node& reached = nodes_[static_cast<std::size_t>(node)];
      if (reached.value != kNoValue) use(i + 1, reached.value);
    }
  }

  bool empty() const { return nodes_.size() <= 1; }

 private:
  static constexpr std::uint32_t kNoValue = 0xFFFFFFFF;
  struct Node {
    std::int32_t base = 0;
    std::int32_t parent = -1;  // -1: free
    std::uint32_t value = kNoValue;
  };
  struct Range;  // of sorted keys with a common prefix

  std::int32_t Child(std::int32_t node, unsigned char byte) const {
    const std::int32_t child = nodes_[static_cast<std::size_t>(node)].base + byte + 1;
    if (child < 0 || static_cast<std::size_t>(child) >= nodes_.size()) return -1;
    return nodes_[static_cast<std::size_t>(child)].parent == node ? child : -1;
  }
  std::int32_t FindBase(const std::vector<unsigned char>& labels);

  std::vector<Node> nodes_;
  std::size_t first_free_ = 1;
};

}  // namespace ds::tokenizer
