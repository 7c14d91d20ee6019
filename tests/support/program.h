#pragma once

// Runs a real program for a test: its output, its exit status, and signals to it at a chosen
// moment.
//
// Moments are events, never times: WaitForOutput returns when the program has printed something.
// A program that outlives its Program object, or the time limit, is killed by its pid.
// Threads: one thread per Program.

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/unique_fd.h"

namespace ds::testing {

struct ProgramOptions {
  std::vector<std::string> environment;     // "NAME=VALUE" over the test's own
  std::filesystem::path working_directory;  // empty: the test's own
  // Only against hanging: far above what a busy machine needs. Then SIGKILL, and the test sees 137.
  std::chrono::seconds time_limit{900};
  std::uint64_t file_size_limit = 0;  // RLIMIT_FSIZE with SIGXFSZ ignored; 0: none
  std::string input;                  // what standard input holds
  int input_fd = -1;                  // -1: `input`
  bool owns_terminal = false;         // input_fd becomes the terminal of a session of its own
  int output_fd = -1;                 // standard output; -1: what out() and WaitForOutput read
  int error_fd = -1;                  // standard error; -1: what err() and WaitForOutput read
  std::vector<int> ignored_signals;
};

struct ProgramResult {
  int status = -1;  // as a shell says it: the exit status, or 128 + signal
  std::string out;
  std::string err;
};

class Program {
 public:
  Program(const std::vector<std::string>& argv, const ProgramOptions& options = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& out() const { return result_.out; }
  const std::string& err() const { return result_.err; }

  // Reads until standard output or standard error holds `text`; false when the program ends first.
  bool WaitForOutput(const std::string& text);
  void Signal(int signal);
  // Reads everything and waits for the end.
  ProgramResult Wait();

 private:
  bool ReadSome();  // false when both streams are closed

  pid_t pid_ = -1;
  UniqueFd out_, err_, timer_;
  ProgramResult result_;
};

ProgramResult RunProgram(const std::vector<std::string>& argv, const ProgramOptions& options = {});

// Processes whose environment holds `mark`, this one aside.
std::vector<pid_t> ProcessesWith(const std::string& mark);
// 0 when there is no such process.
pid_t ParentOf(pid_t pid);

// A folder that goes when the object does.
class TemporaryFolder {
 public:
  TemporaryFolder();
  // Below `parent` in place of the system's folder for such.
  explicit TemporaryFolder(const std::filesystem::path& parent);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace ds::testing
