#pragma once

// ControlStore: where the ranks of a group on GPUs meet, over the group that connects the same
// ranks on CPUs, so that no port is open and no name is looked up.
//
// NCCL's rank 0 puts an identifier into the store of its group and the others look it up. Both
// happen while the group connects, on the thread that makes it, at the same place on all ranks: so
// the value is broadcast. Whatever else LibTorch keeps there (its watchdog's notes, from threads of
// its own) stays in this process.
//
// Threads: any; values travel on the thread that made the store. Errors: those of the control
// group.

#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "runtime/comm/communicator.h"

namespace ds::comm {

class ControlStore : public c10d::HashStore {
 public:
  using Value = std::vector<std::uint8_t>;

  // `control` is used until EndMeeting.
  explicit ControlStore(Communicator* control) : control_(control) {}

  // From here on nothing travels.
  void EndMeeting() { control_ = nullptr; }

  void set(const std::string& key, const Value& value) override;
  Value get(const std::string& key) override;

 private:
  bool IsMeeting() const {
    return std::this_thread::get_id() == meeting_thread_ && control_ != nullptr;
  }

  const std::thread::id meeting_thread_ = std::this_thread::get_id();
  Communicator* control_;  // of the meeting thread alone
};

}  // namespace ds::comm
