#pragma once

// RestartPolicy: whether a failed generation is followed by another.
//
// There is no restart when the user ended the job, when trying again cannot help (config, data,
// checkpoint, a host that refuses), when a host is gone that nothing can replace, when the same
// error came at the same step twice running (a SIGKILL is no error of the program), or when the
// restarts are used up.
//
// Pure. Threads: one at a time.

#include <optional>
#include <string>

#include "cli/job/verdict/verdict.h"

namespace ds::cli {

struct RestartDecision {
  bool restart = false;
  std::string reason;  // "restart 1 of 3", "the same error at step 12 twice"
};

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
