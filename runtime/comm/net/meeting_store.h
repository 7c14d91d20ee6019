#pragma once

// MeetingStore: where the ranks of a job tell each other how they can be reached: texts by name,
// each written once. Through dsrun and the daemons (link_store.h) it needs no port and no name
// service.
//
// Threads: one at a time.

#include <chrono>
#include <string>

#include "runtime/base/status.h"

namespace ds::comm {

class MeetingStore {
 public:
  virtual ~MeetingStore() = default;
  // The first value of a key stays.
  virtual Status Put(const std::string& key, const std::string& value) = 0;
  // Waits until somebody has put it. kDeadlineExceeded when nobody has by then.
  virtual StatusOr<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) = 0;
};

}  // namespace ds::comm
