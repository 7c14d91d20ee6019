#pragma once

// SharedValues: what the ranks of one generation tell each other by name, on this host: put here by
// its own ranks, and by dsrun for those of other hosts.
//
// Bound: kMostBytes together; what would exceed it is refused.
//
// Threads: the loop's.

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

  // The first value of a key stays. Answers who has asked for it.
  Status Put(const std::string& key, const std::string& value);
  // Calls `answer` once, now or when the key is put. What the rank had asked for before and not
  // got, it gets no more.
  void Ask(std::uint32_t rank, const std::string& key, Answer answer);
  // The rank is gone, or its link is.
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
