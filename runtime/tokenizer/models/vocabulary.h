#pragma once

// Vocabulary maps the tokens of a model to their ids, and back. Thread-safe: const functions may be
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

  // Adds a token, or changes the id of an existing one. Rejects ids far above the number of tokens,
  // as they would only waste memory.
  Status Add(std::string token, std::uint32_t id, std::size_t expected_size);

  std::optional<std::uint32_t> Find(std::string_view token) const;
  // Returns null when no token has the id.
  const std::string* TokenOf(std::uint32_t id) const {
    return id < by_id_.size() ? by_id_[id] : nullptr;
  }

  // Returns the number of tokens.
  std::size_t size() const { return ids_.size(); }
  // Returns the largest id plus one.
  std::size_t id_limit() const { return by_id_.size(); }

  // Calls use(token, id) for every token.
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
