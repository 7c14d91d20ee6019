#pragma once

// LinkStore: a MeetingStore over the daemons and dsrun (put, get and value of base/rank_link.h).

#include <chrono>
#include <string>

#include "runtime/base/rank_link.h"
#include "runtime/base/status.h"
#include "runtime/comm/net/meeting_store.h"

namespace ds::comm {

class LinkStore : public MeetingStore {
 public:
  // `link` must outlive the store.
  explicit LinkStore(RankLink* link) : link_(link) {}

  // Returns kInvalidArgument if the value does not fit in a message.
  Status Put(const std::string& key, const std::string& value) override;
  StatusOr<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) override;

 private:
  RankLink* link_;
};

}  // namespace ds::comm
