#include "cli/job/final_status.h"

namespace ds::cli {
namespace {

// True when the program chose the status, or the signal that ended it did.
bool IsTheProgramsOwn(Cause cause) {
  switch (cause) {
    case Cause::kExitCode:
    case Cause::kSignal:
    case Cause::kOutOfMemory:
    case Cause::kSharedMemoryFull:
    case Cause::kException:
    case Cause::kRankError:
      return true;
    default:
      return false;
  }
}

}  // namespace

int FinalStatus(ExitStatus status, ExitCodes codes) {
  if (codes == ExitCodes::kShell || status == kExitOk) return status;
  return status <= kExitCheckpoint ? kDistinctBase + status : kDistinctUserStop;
}

int FinalStatus(const Verdict& verdict, ExitCodes codes) {
  if (codes == ExitCodes::kShell) return verdict.exit_code;
  if (verdict.cause == Cause::kUserStop) return kDistinctUserStop;
  if (!IsTheProgramsOwn(verdict.cause)) {
    return FinalStatus(static_cast<ExitStatus>(verdict.exit_code), codes);
  }
  const bool taken = verdict.exit_code >= kDistinctBase && verdict.exit_code <= kDistinctUserStop;
  return taken ? kDistinctBase : verdict.exit_code;
}

}  // namespace ds::cli
