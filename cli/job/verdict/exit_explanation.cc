#include "cli/job/verdict/exit_explanation.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/base/byte_size.h"

namespace ds::cli {
namespace {

// The statuses of a shell that cannot execute, or cannot find, a command.
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;
// The status of a shell is 128 + n if signal n killed its command.
constexpr int kShellSignal = 128;
constexpr int kLastSignal = 64;

// Below this free space /dev/shm counts as full.
constexpr std::uint64_t kAsGoodAsFull = std::uint64_t{1} << 20;

// Without proof, a killed rank is a likely victim of the out-of-memory killer if it used more than
// this part of the memory limit.
constexpr double kLargePart = 0.7;

std::string OutOfMemoryHint() {
  return "use fewer ranks on this host, a smaller micro-batch or a higher ZeRO stage, or raise the "
         "memory limit";
}

bool SharedMemoryIsFull(const v1::RankExited& exit) {
  return exit.signal() == SIGBUS && exit.has_shared_memory() &&
         std::min(exit.shared_memory().free_bytes(), exit.shared_memory().lowest_free_bytes()) <
             kAsGoodAsFull;
}

// Returns the memory that the ranks may use: the limit of their group or the host's memory, the
// smaller one; 0 = not known.
std::uint64_t MemoryLimit(const v1::RankExited& exit) {
  const std::uint64_t group = exit.oom().group_limit_bytes();
  const std::uint64_t host = exit.host_memory_bytes();
  return group == 0 ? host : host == 0 ? group : std::min(group, host);
}

bool IsLarge(const v1::RankExited& exit) {
  const std::uint64_t limit = MemoryLimit(exit);
  return limit > 0 &&
         static_cast<double>(exit.max_rss_bytes()) > kLargePart * static_cast<double>(limit);
}

std::string KillHint(const v1::RankExited& exit) {
  const bool watched = exit.oom().group_readable() || exit.oom().log_readable();
  if (!watched && IsLarge(exit)) {
    return "most likely the out-of-memory killer, which leaves no mark that can be read here (see "
           "dmesg): " +
           OutOfMemoryHint();
  }
  return watched ? "it was sent from outside the job: by a scheduler's limit, an administrator, or "
                   "a kill; the out-of-memory killer left no mark"
                 : "it was sent from outside the job: by the out-of-memory killer (see dmesg), a "
                   "scheduler's limit or an administrator";
}

std::string BusHint(const v1::RankExited& exit) {
  if (SharedMemoryIsFull(exit)) {
    return "enlarge /dev/shm (docker run --shm-size=8g or --ipc=host; mount -o remount,size=8g "
           "/dev/shm), or use fewer data-loader workers";
  }
  return exit.has_shared_memory()
             ? "a mapped file was truncated or its disk is full; /dev/shm has free space"
             : "a full /dev/shm is the usual reason: see df /dev/shm";
}

std::string SignalHint(const v1::RankExited& exit) {
  switch (exit.signal()) {
    case SIGKILL:
      return KillHint(exit);
    case SIGBUS:
      return BusHint(exit);
    case SIGSEGV:
    case SIGABRT:
    case SIGFPE:
      return "a bug in the program; its last lines or a core dump show where";
    case SIGILL:
      return "the program uses an instruction this CPU does not have or does not permit";
    case SIGXCPU:
    case SIGXFSZ:
      return "a resource limit was reached: see ulimit -a";
    default:
      return "";
  }
}

std::string StatusHint(const v1::RankExited& exit) {
  const int status = exit.exit_code();
  if (exit.oom().group_kills() > 0) {
    return "the out-of-memory killer ended something while this rank ran, perhaps a process it had "
           "started: " +
           OutOfMemoryHint();
  }
  if (status == kNotFound) return "if the program is a shell script, a command in it was not found";
  if (status == kNotExecutable) {
    return "if the program is a shell script, a command in it may not be executed";
  }
  if (status > kShellSignal && status <= kShellSignal + kLastSignal) {
    return "if the program is a shell script, a command in it was killed by " +
           SignalName(status - kShellSignal);
  }
  return "";
}

void AddOomProof(const v1::RankExited& exit, std::string* proof) {
  const v1::OomEvidence& oom = exit.oom();
  if (!oom.kernel_log().empty()) *proof += ", from the kernel's log: " + oom.kernel_log();
  if (oom.group_kills() > 0) {
    *proof += ", its memory group counts " + std::to_string(oom.group_kills()) +
              (oom.group_kills() == 1 ? " out-of-memory kill" : " out-of-memory kills");
    if (oom.group_limit_bytes() > 0) {
      *proof += " at a limit of " + ByteSize(oom.group_limit_bytes());
    }
  } else if (exit.signal() == SIGKILL && !exit.oom_killed() &&
             (oom.group_readable() || oom.log_readable())) {
    *proof += ", no out-of-memory kill was counted or logged";
  }
}

std::string Proof(const v1::RankExited& exit) {
  std::string proof = "process " + std::to_string(exit.pid()) + " ";
  proof += exit.signal() != 0 ? "was ended by " + SignalName(exit.signal())
                              : "exited with status " + std::to_string(exit.exit_code());
  if (exit.core_dumped()) proof += " and dumped core";
  if (exit.max_rss_bytes() > 0) {
    proof += ", peak memory " + ByteSize(exit.max_rss_bytes());
    if (exit.oom_killed() && MemoryLimit(exit) > 0) proof += " of " + ByteSize(MemoryLimit(exit));
  }
  AddOomProof(exit, &proof);
  if (exit.has_shared_memory()) {
    proof += ", /dev/shm has " + ByteSize(exit.shared_memory().free_bytes()) + " free of " +
             ByteSize(exit.shared_memory().total_bytes()) +
             " (least while it ran: " + ByteSize(exit.shared_memory().lowest_free_bytes()) + ")";
  }
  if (exit.link_broken()) proof += ", it broke the protocol of its rank link";
  return proof;
}

}  // namespace

std::string SignalName(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? "signal " + std::to_string(signal)
                         : "signal " + std::to_string(signal) + " (SIG" + name + ")";
}

ExitExplanation ExplainExit(const v1::RankExited& exit) {
  ExitExplanation explanation{.proof = Proof(exit)};
  if (exit.signal() == 0) {
    explanation.what = "ended with status " + std::to_string(exit.exit_code());
    explanation.hint = StatusHint(exit);
  } else if (exit.oom_killed()) {
    explanation.cause = Cause::kOutOfMemory;
    explanation.what = "was killed by the kernel: out of memory";
    explanation.hint = OutOfMemoryHint();
  } else {
    const bool full = SharedMemoryIsFull(exit);
    explanation.cause = full ? Cause::kSharedMemoryFull : Cause::kSignal;
    explanation.what =
        "was killed by " + SignalName(exit.signal()) + (full ? ": /dev/shm is full" : "");
    explanation.hint = SignalHint(exit);
  }
  return explanation;
}

ExitEvidence MakeExitEvidence(const v1::RankExited& exit) {
  ExitEvidence evidence{.max_rss_bytes = exit.max_rss_bytes(),
                        .host_memory_bytes = exit.host_memory_bytes(),
                        .oom_kills = exit.oom().group_kills(),
                        .memory_limit_bytes = exit.oom().group_limit_bytes(),
                        .memory_peak_bytes = exit.oom().group_peak_bytes(),
                        .kernel_log = exit.oom().kernel_log()};
  if (exit.has_shared_memory()) {
    evidence.shared_memory_bytes = exit.shared_memory().total_bytes();
    evidence.shared_memory_free_bytes = exit.shared_memory().free_bytes();
  }
  return evidence;
}

namespace {

using Json = nlohmann::ordered_json;

// Returns the string `name` of an object; "" if there is none.
std::string TextOf(const Json& object, const char* name) {
  if (!object.is_object()) return "";
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::optional<PythonError> ParseErrorFile(std::string_view file) {
  const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("message")) return std::nullopt;
  const Json& body = json["message"];  // a string instead of an object if a signal is reported
  PythonError error{.message =
                        body.is_string() ? body.get<std::string>() : TextOf(body, "message")};
  error.message = error.message.substr(0, error.message.find('\n'));
  if (error.message.empty()) return std::nullopt;
  if (body.is_object() && body.contains("extraInfo")) {
    std::istringstream lines(TextOf(body["extraInfo"], "py_callstack"));
    for (std::string line; std::getline(lines, line);) error.traceback.push_back(line);
  }
  return error;
}

}  // namespace ds::cli
