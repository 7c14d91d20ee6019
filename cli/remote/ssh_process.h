#pragma once

// SshProcess: a running `ssh` of this machine's OpenSSH, with what it is told on its standard input
// and what it says on its two outputs. It has a session of its own (Ctrl-C is dsrun's to handle,
// and no terminal is there to ask a question on).
//
// Threads: one at a time.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/remote/interrupter.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

class SshProcess {
 public:
  // Runs the ssh that PATH names; without one it ends with status 127. `socket` (-1 = pipes of our
  // own) becomes its standard input and output.
  static StatusOr<std::unique_ptr<SshProcess>> Start(const std::vector<std::string>& arguments,
                                                     int socket = -1);
  // Ends it, with a proxy command that it has started.
  ~SshProcess();
  SshProcess(const SshProcess&) = delete;
  SshProcess& operator=(const SshProcess&) = delete;

  struct Limits {
    Interrupter::Deadline deadline;
    Interrupter* interrupter;
  };
  enum class End { kEnough, kExited, kTimeout, kInterrupted };
  // Sends `input`, then its end unless `stay_open`, and gathers what is said until `enough` (called
  // after each piece; may be empty), the process' end, or a limit.
  struct Talk {
    std::string_view input;
    bool stay_open = false;
    std::function<bool()> enough;
  };
  End Converse(const Talk& talk, const Limits& limits);

  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }
  // After kExited: its exit status; -1 when a signal has ended it.
  int status() const { return status_; }
  // Readable from its end on.
  int end() const { return end_.get(); }

 private:
  SshProcess() = default;
  void Write(std::string_view* input);
  void Reap();

  int pid_ = -1;
  UniqueFd in_, out_pipe_, err_pipe_;
  UniqueFd end_;
  std::string out_, err_;
  int status_ = -1;
};

}  // namespace ds::cli
