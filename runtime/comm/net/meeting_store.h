#pragma once

// MeetingStore: a key-value store where the ranks of a job publish how they can be reached. Each
// key is written once. The store over dsrun and the daemons (link_store.h) needs no port and no
// name service.
//
// Not thread-safe.

#include <chrono>
#include <string>

#include "runtime/base/status.h"

namespace ds::comm {

class MeetingStore {
 public:
  virtual ~MeetingStore() = default;
  // Stores a value. If the key exists, its first value stays.
  virtual Status Put(const std::string& key, const std::string& value) = 0;
  // Blocks until the key has been put. Returns kDeadlineExceeded after `timeout`.
  virtual StatusOr<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) = 0;
};

}  // namespace ds::comm
