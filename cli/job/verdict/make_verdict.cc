#include "cli/job/verdict/make_verdict.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <iterator>
#include <vector>

#include "cli/host/connection_probe.h"
#include "cli/job/verdict/exit_explanation.h"
#include "runtime/base/byte_size.h"
#include "runtime/base/exit_codes.h"

namespace ds::cli {
namespace {

Cause ClassError(int exit_code) {
  switch (exit_code) {
    case kExitUsage:
      return Cause::kConfig;
    case kExitCheckpoint:
      return Cause::kCheckpoint;
    default:
      return Cause::kRankError;
  }
}

std::string FormatSeconds(std::chrono::nanoseconds duration) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s",
                std::chrono::duration<double>(duration).count());
  return text.data();
}

std::string FormatTime(std::int64_t unix_nanos) {
  const std::time_t seconds = unix_nanos / 1'000'000'000;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &utc);
  return text.data();
}

// Describes the exception instead of the exit status, which is the same for all Python exceptions.
void ApplyPythonError(const v1::RankExited& exit, Verdict* verdict) {
  const std::optional<PythonError> error = ParseErrorFile(exit.error_file());
  // A program that handled its exception and was killed later died of the signal.
  if (!error.has_value() || exit.signal() != 0) return;
  verdict->cause = Cause::kException;
  verdict->message = "rank " + std::to_string(verdict->rank) + " on " + verdict->host + " raised " +
                     error->message;
  if (!error->traceback.empty()) verdict->last_lines = error->traceback;
  verdict->hint.clear();
}

Verdict MakeLocalDaemonLostVerdict(const std::string& host, const HostChange& change,
                                   int generation) {
  return {.cause = Cause::kDaemonLost,
          .host = host,
          .exit_code = kExitHostLost,
          .generation = generation,
          .message = "the daemon of host " + host + " is lost: it sent nothing for " +
                     FormatSeconds(change.silence),
          .proof =
              "last message at " + FormatTime(change.last_sign_unix_nanos) + "; " + change.evidence,
          .hint =
              "was dsrund stopped, or is this machine out of memory? It is killed now, and its "
              "guardian ends its ranks"};
}

}  // namespace

Verdict MakeStartVerdict(const Status& started) {
  return {.cause = Cause::kPreflight,
          .exit_code = kExitPreflight,
          .message = started.message(),
          .proof = "starting daemons ended with " + std::string(StatusCodeName(started.code()))};
}

Verdict MakeUnreachableVerdict(const FailedHost& failed) {
  return {.cause = Cause::kPreflight,
          .host = failed.host,
          .exit_code = kExitPreflight,
          .message = "host " + failed.host + ": " + failed.failure.message,
          .proof = "reaching it failed: " + std::string(FailureName(failed.failure.kind)),
          .hint = failed.failure.hint};
}

Verdict MakeRefusalVerdict(const std::string& host, const Status& answer) {
  return {.cause = Cause::kPreflight,
          .host = host,
          .exit_code = kExitPreflight,
          .message = "host " + host + ": " + answer.message(),
          .proof = "Prepare answered " + std::string(StatusCodeName(answer.code()))};
}

Verdict MakeFindingVerdict(const std::string& host, const v1::Finding& finding) {
  return {.cause = Cause::kPreflight,
          .host = host,
          .exit_code = kExitPreflight,
          .message = "host " + host + ": " + finding.message(),
          .proof = "preflight check '" + finding.name() + "' failed",
          .hint = finding.hint()};
}

Verdict MakeSameMachineVerdict(const std::string& first, const std::string& second,
                               const std::string& hostfile) {
  return {
      .cause = Cause::kPreflight,
      .host = second,
      .exit_code = kExitPreflight,
      .message = "hosts " + first + " and " + second + " of " + hostfile +
                 " are one machine: their ranks would use the same devices and cores",
      .proof = "their daemons run on one boot of a kernel, in the same network and PID namespaces",
      .hint =
          "keep one of the names, with all slots of the machine (slots=); --share_machine "
          "starts the ranks of both"};
}

Verdict MakeMemoryVerdict(const std::string& host, const MemoryShortage& shortage,
                          const std::string& advice) {
  const auto size = [](std::int64_t bytes) { return ByteSize(static_cast<std::uint64_t>(bytes)); };
  const std::string bound = shortage.nodes.empty() ? "" : " on NUMA node " + shortage.nodes;
  const std::string ranks = shortage.ranks == 1
                                ? "its rank" + bound + " will hold " + size(shortage.needed)
                                : "its " + std::to_string(shortage.ranks) + " ranks" + bound +
                                      " will hold " + size(shortage.needed) + ", " +
                                      size(shortage.rank_bytes) + " each";
  return {.cause = Cause::kPreflight,
          .host = host,
          .exit_code = kExitPreflight,
          .message = "host " + host + ": " + ranks + ", and " + size(shortage.available) +
                     (shortage.nodes.empty() ? " of memory are available" : " of memory are there"),
          .proof = "planned for each rank: " + shortage.parts,
          .hint = advice + "\n--allow_overcommit starts it all the same"};
}

Verdict MakeCoresVerdict(const Status& bound) {
  return {.cause = Cause::kPreflight,
          .exit_code = kExitPreflight,
          .message = bound.message(),
          .proof = "the cores of the hosts were counted",
          .hint = "use fewer ranks a host, or leave --bind_cores_to_rank out"};
}

Verdict MakeProgramVerdict(const Status& status, int generation) {
  constexpr StatusCode kOfCheckpoints[] = {
      StatusCode::kDataLoss,          StatusCode::kNotFound,        StatusCode::kUnavailable,
      StatusCode::kPermissionDenied,  StatusCode::kUnknown,         StatusCode::kDeadlineExceeded,
      StatusCode::kResourceExhausted, StatusCode::kInvalidArgument, StatusCode::kAlreadyExists};
  const bool checkpoint = std::find(std::begin(kOfCheckpoints), std::end(kOfCheckpoints),
                                    status.code()) != std::end(kOfCheckpoints);
  return {.cause = checkpoint ? Cause::kCheckpoint : Cause::kInternal,
          .exit_code = checkpoint ? kExitCheckpoint : kExitFailure,
          .generation = generation,
          .message = status.message(),
          .proof = std::string(StatusCodeName(status.code()))};
}

Verdict MakeLaunchVerdict(const std::string& host, const Status& error, int generation) {
  return {.cause = Cause::kLaunch,
          .host = host,
          .exit_code = kExitPreflight,
          .generation = generation,
          .message = "host " + host + " could not start its ranks: " + error.message(),
          .proof = "error code of the start: " + std::string(StatusCodeName(error.code()))};
}

Verdict MakeUserStopVerdict(int signal, int generation) {
  return {.cause = Cause::kUserStop,
          .exit_code = ExitStatusOfSignal(signal),
          .signal = signal,
          .generation = generation,
          .message = "the job was stopped by the user",
          .proof = "dsrun received " + SignalName(signal)};
}

bool IsSignalOfStop(int signal) { return signal == SIGTERM || signal == SIGKILL; }

Verdict MakeRankVerdict(const FailedRank& failed, int generation) {
  const v1::RankExited& exit = failed.exit;
  const int rank = static_cast<int>(exit.rank());
  const ExitExplanation explanation = ExplainExit(exit);
  Verdict verdict{
      .cause = explanation.cause,
      .rank = rank,
      .host = failed.host,
      .exit_code = exit.signal() == 0 ? exit.exit_code() : ExitStatusOfSignal(exit.signal()),
      .signal = exit.signal(),
      .generation = generation,
      .step = failed.last_step,
      .message = "rank " + std::to_string(rank) + " on " + failed.host + " " + explanation.what,
      .proof = explanation.proof,
      .hint = explanation.hint,
      .pid = static_cast<int>(exit.pid()),
      .evidence = MakeExitEvidence(exit)};
  ApplyPythonError(exit, &verdict);
  const bool was_stopped = exit.stopping() && IsSignalOfStop(exit.signal());
  if (failed.error != nullptr && (exit.signal() == 0 || was_stopped)) {
    if (was_stopped) {
      verdict.exit_code = std::max(1, static_cast<int>(failed.error->exit_code()));
      verdict.signal = 0;
    }
    verdict.cause = ClassError(verdict.exit_code);
    verdict.message = failed.error->message();
    verdict.hint = failed.error->hint();
  }
  return verdict;
}

Verdict MakeDaemonLostVerdict(const std::string& host, const std::string& why, int generation) {
  return {.cause = Cause::kDaemonLost,
          .host = host,
          .exit_code = kExitHostLost,
          .generation = generation,
          .message = "the daemon of host " + host + " is gone",
          .proof = why,
          .hint =
              "the kernel and the guardian of dsrund end its ranks; the log of the host may name "
              "the process that killed it"};
}

Verdict MakeHostLostVerdict(const std::string& host, const HostChange& change, int generation) {
  if (change.is_of_this_machine) return MakeLocalDaemonLostVerdict(host, change, generation);
  const std::string evidence =
      change.evidence + (change.probe.has_value() ? "; its port: " + change.probe->detail : "");
  const auto found = [&](Reachability what) {
    return change.probe.has_value() && change.probe->reachability == what;
  };
  if (found(Reachability::kRefused)) return MakeDaemonLostVerdict(host, evidence, generation);
  return {
      .cause = Cause::kHostLost,
      .host = host,
      .exit_code = kExitHostLost,
      .generation = generation,
      .message = "host " + host + " is lost: it sent nothing for " + FormatSeconds(change.silence),
      .proof = "last message at " + FormatTime(change.last_sign_unix_nanos) + "; " + evidence,
      .hint = found(Reachability::kListening)
                  ? "the host answers but dsrund does not: was it stopped, or is the host out "
                    "of memory or its disk stuck? Its ranks are ended with its lease"
                  : "is the host up, and the network to it? Its daemon stops its ranks on its "
                    "own, because it receives nothing from dsrun either"};
}

Verdict MakeLeaseExpiredVerdict(const std::string& host, int generation) {
  return {.cause = Cause::kHostLost,
          .host = host,
          .exit_code = kExitHostLost,
          .generation = generation,
          .message = "host " + host +
                     " stopped its ranks: it received nothing from dsrun within its lease",
          .proof = "the daemon's lease expired",
          .hint = "look at the network between dsrun and the host"};
}

Verdict MakeDisconnectedVerdict(const std::string& host, int generation) {
  return {.cause = Cause::kHostLost,
          .host = host,
          .exit_code = kExitHostLost,
          .generation = generation,
          .message = "host " + host + " stopped its ranks: its connections to dsrun were closed",
          .proof = "its daemon found them closed by the other end, and no new one was opened",
          .hint = "does a firewall or gateway between dsrun and the host reset connections?"};
}

Verdict MakeSuspendedVerdict(const OwnPause& pause, const Verdict& loss) {
  const bool slept = pause.asleep > pause.length / 2;
  return {.cause = Cause::kSuspended,
          .exit_code = kExitHostLost,
          .generation = loss.generation,
          .step = loss.step,
          .message = "dsrun itself was suspended for " + FormatSeconds(pause.length) +
                     "; the leases of its hosts ran out, and they ended their ranks",
          .proof = (slept ? "its machine slept for " + FormatSeconds(pause.asleep)
                          : "its process did not run, and its machine was awake") +
                   "; then: " + loss.message,
          .hint =
              "was it stopped (Ctrl-Z, SIGSTOP), or is it on a machine that sleeps? "
              "--lease_seconds is for how long its hosts do without it"};
}

void AddHint(const std::string& text, Verdict* verdict) {
  verdict->hint += (verdict->hint.empty() ? "" : "; ") + text;
}

void AddSuspension(const OwnPause& pause, Verdict* verdict) {
  AddHint("dsrun itself was suspended for " + FormatSeconds(pause.length) +
              " meanwhile: other hosts may have ended their ranks before, with their leases",
          verdict);
}

Verdict MakeDaemonSignalledVerdict(const std::string& host, int generation) {
  return {.cause = Cause::kDaemonLost,
          .host = host,
          .exit_code = kExitHostLost,
          .generation = generation,
          .message = "the daemon of host " + host + " was terminated",
          .proof = "dsrund received a signal and stopped its ranks",
          .hint = "was it ended by a user, a scheduler or a shutdown of the host?"};
}

Verdict MakeStallVerdict(const StalledRank& stalled, int generation) {
  return {.cause = Cause::kStall,
          .rank = stalled.rank,
          .host = stalled.host,
          .exit_code = kExitStall,
          .generation = generation,
          .message = "rank " + std::to_string(stalled.rank) + " on " + stalled.host +
                     " makes no progress while the others wait for it",
          .proof = "process " + std::to_string(stalled.pid) + " has been stopped by a signal for " +
                   FormatSeconds(stalled.since),
          .hint =
              "find the sender of its SIGSTOP. A rank that is continued (SIGCONT) within "
              "--lease_seconds does not end the job",
          .pid = stalled.pid};
}

Verdict MakeAbsenceVerdict(const AbsentRank& absent, int generation) {
  const bool late = absent.error.absence() == v1::RankError::LATE;
  const std::string witness =
      "rank " + std::to_string(absent.witness) + " on " + absent.witness_host;
  return {.cause = late ? Cause::kStall : Cause::kNetwork,
          .rank = absent.rank,
          .host = absent.host,
          .exit_code = late ? kExitStall : kExitHostLost,
          .generation = generation,
          .message = late ? absent.error.message()
                          : "hosts " + absent.witness_host + " and " + absent.host +
                                " do not reach each other: " + absent.error.message(),
          .proof = late ? witness + " waited for it, and its process lives"
                        : witness + " gets no answer, but both hosts respond to dsrun",
          .hint = late ? "is it stuck (py-spy dump or gdb -p shows where), or much slower than the "
                         "others? --collective_timeout is how long they wait"
                       : "check the network between these two hosts; --interface selects another "
                         "one for the traffic between ranks",
          .pid = absent.pid};
}

Verdict MakeRunDirectoryVerdict(const Status& written, int generation) {
  return {.cause = Cause::kInternal,
          .exit_code = kExitFailure,
          .generation = generation,
          .message = written.message(),
          .proof = "the run directory could not be written",
          .hint = "free some space there, or choose another --run_dir"};
}

}  // namespace ds::cli
