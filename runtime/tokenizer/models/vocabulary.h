#pragma once

// Vocabulary: the tokens of a model and their ids, both ways. Threads: const functions may be
// called concurrently.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/status.h"

namespace ds::tokenizer {

class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // Adds a token; one that is there already gets this id. Ids far above the number of tokens are
  // refused, as they would only cost memory.
  Status Add(std::string token, std::uint32_t id, std::size_t expected_size);

  std::optional<std::uint32_t> Find(std::string_view token) const;
  // Null when no token has the id.
  const std::string* TokenOf(std::uint32_t id) const {
    return id < by_id_.size() ? by_id_[id] : nullptr;
  }

  // The number of tokens.
  std::size_t size() const { return ids_.size(); }
  // The largest id and one.
  std::size_t id_limit() const { return by_id_.size(); }

  // Calls use(token, id) with every token.
  template <typename Use>
  void ForEach(Use use) const {
    for (const auto& [token, id] : ids_) use(token, id);
  }

 private:
  std::deque<std::string> tokens_;
  std::unordered_map<std::string_view, std::uint32_t> ids_;
  std::vector<const std::string*> by_id_;
};

}  // namespace ds::tokenizer
