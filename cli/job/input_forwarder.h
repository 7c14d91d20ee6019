#pragma once

// InputForwarder: carries dsrun's standard input to rank 0 while a generation runs.
//
// A terminal is read only while dsrun is in its foreground, so a job in the background is never
// stopped by SIGTTIN and never takes what is typed for somebody else. Ctrl-D, or the end of a file
// or pipe, ends rank 0's input. What a generation did not take is given to the next; a file is read
// again from where it stood.
//
// Threads: Start, Begin and Stop on one; the input is read on a thread of its own.

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

// True when there is something to read: `fd` is open and not /dev/null.
bool HasInput(int fd);

class InputForwarder {
 public:
  struct Chunk {
    std::uint64_t offset = 0;  // of its first byte within this generation's input
    std::string data;
    bool end = false;  // nothing follows
  };
  // Returns how many bytes were taken: fewer than there are when there was no room for a while. A
  // chunk that nobody answered (NobodyAnswered) is sent again, any other error ends the forwarding.
  using Send = std::function<StatusOr<std::uint64_t>(const Chunk&)>;

  // `fd` outlives the forwarder and stays open.
  explicit InputForwarder(int fd);
  ~InputForwarder() { Stop(); }
  InputForwarder(const InputForwarder&) = delete;
  InputForwarder& operator=(const InputForwarder&) = delete;

  // Makes the thread, which may be the last that is to be had, and reads nothing before Begin: the
  // ranks may leave room for none. Requires: not started, or stopped since.
  // kResourceExhausted where there is no thread.
  Status Start(Send send);
  // Once behind each Start, when rank 0 can take something.
  void Begin();
  // Waits for a Send that is going on.
  void Stop();

 private:
  void Loop(const Send& send);
  bool QuitWithin(int milliseconds) const;
  bool AwaitInput() const;  // false: to be stopped
  bool InForeground() const;
  // False when it is to be stopped or cannot be read yet; then chunk_ is as it was.
  bool Read();

  const int fd_;
  const bool terminal_;
  const std::int64_t start_;  // of a file; -1 for what cannot be read again
  Chunk chunk_;               // read, not taken yet
  UniqueFd quit_;
  std::optional<std::promise<bool>> begin_;  // false: stopped before
  std::thread thread_;
};

}  // namespace ds::cli
