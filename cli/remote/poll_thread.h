#pragma once

// PollThread is the only thread of this process that forwards SSH traffic while a job runs, for any
// number of hosts. Members name the descriptors that they wait for, and are called when one is
// ready. Members must not block.
//
// Thread-safe, except from the poll thread itself.

#include <poll.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

class PollMember {
 public:
  virtual ~PollMember() = default;
  // Appends the descriptors to wait for. Called before each wait, on the poll thread, like OnReady.
  virtual void AddWatched(std::vector<pollfd>* watched) = 0;
  // Called when a descriptor is ready; `watched` are the entries that AddWatched appended last.
  // Returns false if the member has ended; it is then no longer called.
  virtual bool OnReady(std::span<const pollfd> watched) = 0;
};

class PollThread {
 public:
  // Returns the shared thread. The first caller creates it; it ends when the last pointer is
  // released. Throws std::system_error if this machine has no free thread.
  static StatusOr<std::shared_ptr<PollThread>> Get();
  // Requires: no members.
  ~PollThread();
  PollThread(const PollThread&) = delete;
  PollThread& operator=(const PollThread&) = delete;

  void Add(PollMember* member);
  // Removes the member and returns when no call to it is in progress. No effect if it is not a
  // member.
  void Remove(PollMember* member);

 private:
  explicit PollThread(UniqueFd wake);
  void Loop();
  void Change();

  const UniqueFd wake_;
  std::mutex mutex_;                  // guards all members below; held while members are called
  std::vector<PollMember*> members_;  // in the order of Add
  std::uint64_t changes_ = 0;         // of members_
  bool quit_ = false;
  std::thread thread_;  // last, because it uses the other members
};

}  // namespace ds::cli
