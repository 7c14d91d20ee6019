#pragma once

// Program: what the ranks of a job execute.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/flags/launch_flags.h"
#include "runtime/base/status.h"

namespace ds::cli {

// The program of one generation. argv[0] == "" is the host's dsrank; the text "@DSRUN_JOB_DIR@" in
// argv is the folder of `files`.
struct RankProgram {
  std::vector<std::string> argv;
  std::string script;           // a file among argv, which must be on every host; "" = none
  int local_rank_position = 0;  // where --local_rank=N goes in argv, its end at most; 0 = nowhere
  std::vector<std::pair<std::string, std::string>> files;  // name, content
  std::vector<std::string> notices;                        // for the user
  bool begins_again = false;  // a restart that goes on from no checkpoint
  std::string unusable;       // then: which checkpoint the run had, and its damage; "" = none
};

// The user's program, as `words` name it behind the launch flags: a Python program gets its
// interpreter, a script is looked for on every host, anything else stays as it is. Without words
// there is nothing to execute.
RankProgram MakeUserProgram(const LaunchFlags& flags, const std::vector<std::string>& words);

class Program {
 public:
  virtual ~Program() = default;
  // argv[0] and script are the same for every generation. kUnavailable: the storage has trouble,
  // and trying again may help. Every other error ends the job (kDataLoss, kNotFound: no usable
  // checkpoint). Restarts call it from another thread, one at a time.
  virtual StatusOr<RankProgram> ForGeneration(int generation) const = 0;
  // Says what would fit where each rank has so many bytes of its host's memory, for jobs whose
  // JobPurpose::memory is known.
  virtual std::string AdviseOnMemory(std::int64_t /*rank_bytes*/, bool /*on_gpus*/) const {
    return "";
  }
};

// Every generation runs the same.
class SameProgram : public Program {
 public:
  explicit SameProgram(RankProgram program) : program_(std::move(program)) {}
  StatusOr<RankProgram> ForGeneration(int /*generation*/) const override { return program_; }

 private:
  const RankProgram program_;
};

}  // namespace ds::cli
