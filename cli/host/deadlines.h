#pragma once

// Deadlines are the limits of all waits of a front, an agent and their clients of daemons, in one
// table, with the step that follows each. The user's own limits are flags:
// --grace_seconds, --lease_seconds, --ssh_timeout, --start_timeout. Intervals of retries and of
// output are not waits, and stay where they are used.

#include <chrono>

namespace ds::cli::deadlines {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The end of a job that the user stops
//
// Grace, lease and this time after the first signal, without progress of the writes: kLastChance.
inline constexpr seconds kBehindGraceAndLease{6};
// Killed ranks, and daemons that are well, end within this time. Then the user is told of the
// others: kLastChance.
inline constexpr seconds kKilledRanks{1};
// Then the agent kills the daemons of this machine and drops the writes that wait.
inline constexpr seconds kLastChance{2};
// After that, a write gets this time, among them the verdict.
inline constexpr milliseconds kWriteWhenGivenUp{400};
// From the second signal on a front waits this long for all of that. Then it kills the agent and
// the daemons of this machine, and ends.
inline constexpr milliseconds kSecondSignal{4500};
// Its last words may take this long.
inline constexpr milliseconds kLastWords{200};
// A console of a stopped job that takes no byte for this time is blocked: dsrun ends.
inline constexpr seconds kConsole{5};

// Daemons of this machine
//
// The user is told of daemons that have not ended.
inline constexpr milliseconds kUntilToldOfDaemon{1'000};
// A guardian gives processes half of this time, after its dsrund has ended. Then it is killed.
inline constexpr milliseconds kGuardian{10'000};
// Processes that were killed. Then they are left alone.
inline constexpr milliseconds kKilled{5'000};
// A dsrund that lives on without its guardian, with the grace of its ranks. Then its control
// groups are removed.
inline constexpr milliseconds kDaemonWithoutGuardian{60'000};

// Calls
//
// A call that waits for nothing. Then the daemon counts as silent; its lease decides. In Prepare, a
// Python interpreter gets half of this time at most.
inline constexpr seconds kCall{30};
// A look at a host. Its programs get half of this time; one of them loads LibTorch with its CUDA
// libraries, perhaps from a cold disk. A Python interpreter gets 30 s
// (daemon/inspect/python_facts.h).
inline constexpr seconds kInspect{120};
// A call that is repeated after a lost answer: Stop, input and shared values.
inline constexpr seconds kRepeatedCall{5};
// The answer to a release. Then the job ends without it.
inline constexpr milliseconds kRelease{2000};
// The probe of the port of a lost host. Then it counts as unreachable.
inline constexpr milliseconds kProbe{2000};

// Fronts
//
// A reply of an agent. Then the command reports that there is none.
inline constexpr seconds kReply{10};
// Another agent, after one was killed. Then the front reports its end.
inline constexpr seconds kTakeOver{10};
// A front whose output is a file and that takes nothing for this time delays ranks no more.
inline constexpr seconds kStalledFront{5};

}  // namespace ds::cli::deadlines
