#pragma once

// LocalProcess is a program that runs on this machine while a host is started: OpenSSH's client, or
// a command of the SSH configuration. It runs in a new session, because dsrun handles Ctrl-C, and
// so that no terminal is there for questions.
//
// Not thread-safe.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/remote/interrupter.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

class LocalProcess {
 public:
  // Starts `argv`; argv[0] is a path. `socket` becomes its standard input and output; -1 = new
  // pipes.
  static StatusOr<std::unique_ptr<LocalProcess>> Start(std::vector<std::string> argv,
                                                       int socket = -1);
  // Runs the ssh in PATH; without one the process ends with status 127.
  static StatusOr<std::unique_ptr<LocalProcess>> StartSsh(const std::vector<std::string>& arguments,
                                                          int socket = -1);
  // Ends the process and its process group.
  ~LocalProcess();
  LocalProcess(const LocalProcess&) = delete;
  LocalProcess& operator=(const LocalProcess&) = delete;

  struct Limits {
    Interrupter::Deadline deadline;
    Interrupter* interrupter;
  };
  enum class End { kEnough, kExited, kTimeout, kInterrupted };
  // Sends `input`, then end-of-file unless `stay_open`, and collects the outputs until `enough`
  // returns true (called after each piece; may be empty), the process ends, or a limit is reached.
  struct Talk {
    std::string_view input;
    bool stay_open = false;
    std::function<bool()> enough;
  };
  End Converse(const Talk& talk, const Limits& limits);

  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }
  // After kExited: the exit status; -1 if a signal ended the process.
  int status() const { return status_; }
  // Returns a descriptor that is readable after the process has ended.
  int end() const { return end_.get(); }

 private:
  LocalProcess() = default;
  void Write(std::string_view* input);
  void Reap();

  int pid_ = -1;
  UniqueFd in_, out_pipe_, err_pipe_;
  UniqueFd end_;
  std::string out_, err_;
  int status_ = -1;
};

}  // namespace ds::cli
