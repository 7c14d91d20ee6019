#include "cli/commands/exit_status_table.h"

#include <csignal>

#include "cli/job/final_status.h"
#include "runtime/base/exit_codes.h"

namespace ds::cli {
namespace {

constexpr ExitStatusRow Own(ExitStatus status, std::string_view meaning) {
  return {status, status == kExitOk ? status : kDistinctBase + status, meaning};
}

constexpr ExitStatusRow kRows[] = {
    Own(kExitOk, "every rank succeeded"),
    Own(kExitFailure, "dsrun itself could not go on"),
    Own(kExitUsage, "command line, hostfile, config, model or data; nothing was started"),
    Own(kExitPreflight, "a host refused the job, or lacks memory for it, before any rank started"),
    Own(kExitHostLost, "a host or its daemon stopped answering"),
    Own(kExitStall, "a rank stood still while the others waited for it"),
    Own(kExitCheckpoint, "the checkpoint named or needed is not usable"),
    {ExitStatusOfSignal(SIGINT), kDistinctUserStop,
     "the user stopped the job: Ctrl-C; 143 for SIGTERM"},
};

}  // namespace

std::span<const ExitStatusRow> ExitStatusTable() { return kRows; }

}  // namespace ds::cli
