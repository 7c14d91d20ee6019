#pragma once

// LinkStore: the ranks of a job meet through their daemons and dsrun (put, get and value of
// base/rank_link.h).

#include <chrono>
#include <string>

#include "runtime/base/rank_link.h"
#include "runtime/base/status.h"
#include "runtime/comm/net/meeting_store.h"

namespace ds::comm {

class LinkStore : public MeetingStore {
 public:
  // `link` outlives the store.
  explicit LinkStore(RankLink* link) : link_(link) {}

  // kInvalidArgument when it is more than a message holds.
  Status Put(const std::string& key, const std::string& value) override;
  StatusOr<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) override;

 private:
  RankLink* link_;
};

}  // namespace ds::comm
