#pragma once

// InputForwarder forwards dsrun's standard input to rank 0 while a generation runs.
//
// It reads a terminal only while dsrun is in the foreground, so that a background job is not
// stopped by SIGTTIN and does not take input meant for other programs. Ctrl-D, or the end of a file
// or pipe, ends rank 0's input. Input that one generation did not accept goes to the next; a file
// is read again from its first position.
//
// Call Start, Begin and Stop on one thread; a separate thread reads the input.

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>

#include "cli/job/rank_input.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

// Returns true if `fd` is open and not /dev/null.
bool HasInput(int fd);

class InputForwarder : public RankInput {
 public:
  // `fd` must stay open during the lifetime of the forwarder.
  explicit InputForwarder(int fd);
  ~InputForwarder() override { Stop(); }
  InputForwarder(const InputForwarder&) = delete;
  InputForwarder& operator=(const InputForwarder&) = delete;

  Status Start(Send send) override;
  void Begin() override;
  void Stop() override;

 private:
  void Loop(const Send& send);
  bool QuitWithin(int milliseconds) const;
  bool AwaitInput() const;  // false: to be stopped
  bool InForeground() const;
  // Returns false if it is to be stopped or cannot read yet; chunk_ is then unchanged.
  bool Read();

  const int fd_;
  const bool terminal_;
  const std::int64_t start_;  // of a file; -1 if it cannot be read again
  InputPiece chunk_;          // read, but not accepted yet
  UniqueFd quit_;
  std::optional<std::promise<bool>> begin_;  // false: stopped before Begin
  std::thread thread_;
};

}  // namespace ds::cli
