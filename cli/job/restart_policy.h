#pragma once

// RestartPolicy: whether a failed generation is followed by another.
//
// There is no restart when the user ended the job, when trying again cannot help (config, data,
// checkpoint, a host that refuses), when a host is gone that nothing can replace, when the same
// error came at the same step twice running (a SIGKILL is no error of the program), or when the
// restarts are used up.
//
// Nor does a restart begin at step 0 by itself when the run had a checkpoint.
//
// Pure. Threads: one at a time.

#include <optional>
#include <string>

#include "cli/job/program.h"
#include "cli/job/verdict/verdict.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct RestartDecision {
  bool restart = false;
  std::string reason;  // "restart 1 of 3", "the same error at step 12 twice"
};

// kDataLoss for a program that begins at step 0 again although the run had a checkpoint: one that
// the program tells of, or `saved`, which a rank has reported ("" = none).
Status CheckBeginning(const RankProgram& program, const std::string& saved);

class RestartPolicy {
 public:
  explicit RestartPolicy(int max_restarts) : max_restarts_(max_restarts) {}

  // `missing`: why the job's hosts are not all there any more; "" when they are, or can be.
  RestartDecision Decide(const Verdict& verdict, const std::string& missing = "");

 private:
  const int max_restarts_;
  int used_ = 0;
  std::optional<Verdict> previous_;
};

}  // namespace ds::cli
