#pragma once

// PollThread: the one thread of this process that moves what goes through SSH while a job runs,
// however many hosts there are. Its members say which descriptors they wait for, and are called
// when one of them is ready. Nobody of them may block.
//
// Threads: all members of the class from any but its own.

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
  // Appends what it waits for; called before each wait, on the thread, like the other one.
  virtual void AddWatched(std::vector<pollfd>* watched) = 0;
  // `watched` is what it has appended last; something of it is ready. False: it has ended and is
  // not called any more.
  virtual bool OnReady(std::span<const pollfd> watched) = 0;
};

class PollThread {
 public:
  // Makes it for its first user; it ends with its last. Throws std::system_error where this machine
  // has no room for a thread.
  static StatusOr<std::shared_ptr<PollThread>> Get();
  // Requires: it has no members.
  ~PollThread();
  PollThread(const PollThread&) = delete;
  PollThread& operator=(const PollThread&) = delete;

  void Add(PollMember* member);
  // Returns when it is not being called, nor will be. Nothing is done with one that is none.
  void Remove(PollMember* member);

 private:
  explicit PollThread(UniqueFd wake);
  void Loop();
  void Change();

  const UniqueFd wake_;
  std::mutex mutex_;                  // guards all below; held while members are called
  std::vector<PollMember*> members_;  // in the order in which they came
  std::uint64_t changes_ = 0;         // of them
  bool quit_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace ds::cli
