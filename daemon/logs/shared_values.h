#pragma once

// SharedValues is the key-value store of the ranks of one generation on this host. Its own ranks
// put values here, and dsrun puts those of other hosts.
//
// The total size is limited to kMostBytes; further values are rejected.
//
// Use it on the loop's thread only.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "runtime/base/status.h"

namespace ds::daemon {

class SharedValues {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  using Answer = std::function<void(const std::string& value)>;

  // Stores a value and answers pending requests for it. The first value of a key is kept.
  Status Put(const std::string& key, const std::string& value);
  // Calls `answer` once, now or when the key is put. Cancels an earlier pending request of the
  // rank.
  void Ask(std::uint32_t rank, const std::string& key, Answer answer);
  // Call when the rank or its link has ended.
  void Forget(std::uint32_t rank) { asked_.erase(rank); }

 private:
  struct Question {
    std::string key;
    Answer answer;
  };
  std::map<std::string, std::string> values_;
  std::map<std::uint32_t, Question> asked_;  // by rank
  std::size_t bytes_ = 0;
};

}  // namespace ds::daemon
