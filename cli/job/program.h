#pragma once

// Program supplies the command that the ranks of a job execute.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/flags/launch_flags.h"
#include "cli/job/job_plan.h"
#include "runtime/base/status.h"

namespace ds::cli {

// The command of one generation. argv[0] == "" is the host's dsrank; the text "@DSRUN_JOB_DIR@" in
// argv is replaced by the folder of `files`.
struct RankProgram {
  std::vector<std::string> argv;
  std::string script;            // a file in argv that must exist on every host; "" = none
  bool has_interpreter = false;  // argv[0] is the interpreter of a Python script or module
  int local_rank_position = 0;   // position of --local_rank=N in argv, at most its end; 0 = none
  std::vector<std::pair<std::string, std::string>> files;  // name, content
  std::vector<std::string> notices;                        // for the user
  bool begins_again = false;                               // a restart without a checkpoint
  std::string
      unusable;  // with begins_again: the run's unusable checkpoint and its damage; "" = none
};

// Returns the absolute path of an interpreter that is named without a slash, as PATH of this host
// leads to it (that of `exports`, else of `shell`). Every host then runs this path, so an activated
// environment is in effect everywhere, not on this host only. Links are not resolved: Python
// finds its environment by the link. Any other `python`, and a name that this host does not have,
// is returned unchanged. Reads the file system.
std::string FindInterpreter(const std::string& python, const Environment& exports,
                            const Shell& shell);

// Returns true if a program of this name or path is a Python interpreter: python, python3.12.
bool IsPython(std::string_view program);

// Makes the user's program from `words`, the words after the launch flags. A Python program gets
// its interpreter, a script is checked on every host, any other program stays unchanged. Requires
// words that CheckEngine accepts.
RankProgram MakeUserProgram(const LaunchFlags& flags, const std::vector<std::string>& words);

// Rejects --engine native for words that are no Python program: an executable, or one of dsrun's
// own commands. Requires words.
Status CheckEngine(const LaunchFlags& flags, const std::vector<std::string>& words);

class Program {
 public:
  virtual ~Program() = default;
  // Returns the program of a generation; argv[0] and script are the same for all. kUnavailable: the
  // storage has problems, and a retry may succeed. Every other error ends the job (kDataLoss,
  // kNotFound: no usable checkpoint). Restarts call it on another thread, one call at a time.
  virtual StatusOr<RankProgram> ForGeneration(int generation) const = 0;
  // Returns advice on settings that fit when each rank has `rank_bytes` of its host's memory, for
  // jobs with a known JobPurpose::memory.
  virtual std::string AdviseOnMemory(std::int64_t /*rank_bytes*/, bool /*on_gpus*/) const {
    return "";
  }
};

// A program that is the same for every generation.
class SameProgram : public Program {
 public:
  explicit SameProgram(RankProgram program) : program_(std::move(program)) {}
  StatusOr<RankProgram> ForGeneration(int /*generation*/) const override { return program_; }

 private:
  const RankProgram program_;
};

}  // namespace ds::cli
