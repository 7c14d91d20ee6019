#include "cli/job/restart_policy.h"

#include <csignal>

namespace ds::cli {
namespace {

// Says why another try cannot help; "" when it may.
std::string FindReasonAgainstRestart(Cause cause) {
  switch (cause) {
    case Cause::kUserStop:
      return "the user stopped the job";
    case Cause::kConfig:
      return "the config, model or data must change first";
    case Cause::kCheckpoint:
      return "there is no usable checkpoint";
    case Cause::kPreflight:
    case Cause::kLaunch:
      return "the host refuses the job";
    case Cause::kInternal:
      return "dsrun itself cannot go on";
    case Cause::kHostLost:
    case Cause::kDaemonLost:
    case Cause::kStall:
    case Cause::kNetwork:
    case Cause::kSuspended:
    case Cause::kExitCode:
    case Cause::kSignal:
    case Cause::kOutOfMemory:
    case Cause::kSharedMemoryFull:  // what the ranks had there is free again
    case Cause::kException:
    case Cause::kRankError:
      return "";
  }
  return "";
}

// Without steps (any program that reports none) nothing tells a repeated error from bad luck. Nor
// does a SIGKILL, which comes from outside the program: a cluster may take a rank twice in a step
// that is long. (Memory that ran out has a cause of its own.)
bool SameErrorAtSameStep(const Verdict& a, const Verdict& b) {
  if (a.cause == Cause::kSignal && a.signal == SIGKILL) return false;
  return a.step.has_value() && a.step == b.step && a.cause == b.cause && a.rank == b.rank &&
         a.host == b.host && a.exit_code == b.exit_code && a.signal == b.signal;
}

}  // namespace

Status CheckBeginning(const RankProgram& program, const std::string& saved) {
  std::string why = program.unusable;
  if (why.empty() && !saved.empty()) why = "checkpoint " + saved + " is gone";
  if (!program.begins_again || why.empty()) return OkStatus();
  return DataLossError("not restarted at step 0, because the run had a checkpoint: " + why +
                       "; repair it and go on with 'dsrun resume', or allow a new beginning with "
                       "--restart_from_scratch");
}

RestartDecision RestartPolicy::Decide(const Verdict& verdict, const std::string& missing) {
  if (const std::string why = FindReasonAgainstRestart(verdict.cause); !why.empty())
    return {false, why};
  if (max_restarts_ == 0) return {false, "no restarts were asked for (--max_restarts)"};
  if (!missing.empty()) return {false, missing};
  if (previous_.has_value() && SameErrorAtSameStep(*previous_, verdict)) {
    return {false, "the same error at step " + std::to_string(*verdict.step) + " twice"};
  }
  if (used_ == max_restarts_) {
    return {false, "all " + std::to_string(max_restarts_) + " restarts are used up"};
  }
  ++used_;
  previous_ = verdict;
  return {true, "restart " + std::to_string(used_) + " of " + std::to_string(max_restarts_)};
}

}  // namespace ds::cli
