#pragma once

// Front shows a job to the user and passes on what he does: signals and standard input. It talks to
// the agent over one connection (proto/agent.proto). A front that is stopped, blocked or killed
// delays no rank.
//
// From the user's second stop signal on, Run ends within 5 s, whatever the agent does.
//
// Not thread-safe. Create it before the process has another thread: it blocks the user's signals.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "cli/console/backlog_writer.h"
#include "cli/console/console.h"
#include "cli/flags/launch_flags.h"
#include "cli/front/agent_link.h"
#include "cli/front/input_forwarder.h"
#include "cli/job/user_signals.h"
#include "proto/agent.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct FrontOptions {
  ConsoleOptions console;
  std::filesystem::path run_directory;
  ExitCodes exit_codes = ExitCodes::kShell;
  bool reads_input = false;  // standard input goes to rank 0
  // Leaves when this number of ranks has started, and the job goes on; 0 = stays.
  int detach_after = 0;
  bool leaves_on_hangup = false;  // SIGHUP ends this front, not the job
  std::string greeting = {};      // shown when the agent has accepted this front
  // Blocks until another agent has taken over the job of one that has gone, and returns the
  // connection to it; an error: there is none. May be null.
  std::function<StatusOr<UniqueFd>()> await_successor = nullptr;
  // Called to end the agent if it does not react to the user; may be null.
  std::function<void()> kill_agent = nullptr;
};

class Front {
 public:
  explicit Front(FrontOptions options);
  ~Front();
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  // Starts the threads of the console and the signals. kResourceExhausted: there are none.
  Status Begin();
  // Requires Begin. Shows the job until the agent closes the connection, or the job is detached.
  // Returns the exit status of dsrun; nullopt: the agent has gone without an outcome.
  std::optional<int> Run(UniqueFd agent);
  bool detached() const { return phase_ == Phase::kDetached; }
  // Shows a verdict that did not come from the agent.
  int ShowVerdict(const Verdict& verdict);

 private:
  enum class Phase { kRunning, kEnded, kDetached };

  void Receive();
  void Handle(const v1::FromAgent& message);
  void OnEvent(const v1::JobEvent& event);
  // Returns false for an event that an earlier agent has sent, too.
  bool IsNew(const v1::JobEvent& event);
  void Connect(UniqueFd agent);
  void SendDetach();
  void OnHello(const v1::AgentHello& hello);
  void OnSignal(int signal);
  void AwaitConsole();
  Status StartInput(std::uint64_t serial);

  const FrontOptions options_;
  UserSignals signals_;  // first: no other thread may take the user's signals
  BacklogWriter writer_;
  Console console_;
  AgentLink link_;
  InputForwarder input_;
  const bool lossless_;
  Phase phase_ = Phase::kRunning;
  bool greeted_ = false;
  bool detaches_ = false;
  int status_ = 0;
  int started_ = 0;  // ranks of the newest generation
  int generation_ = -1;
  // The generation and the sequence of each host's last event.
  std::map<std::string, std::pair<int, std::uint64_t>> shown_;
  std::atomic<bool> left_ = false;    // on SIGHUP
  std::atomic<int> stop_signal_ = 0;  // the user's first; 0 = none
  std::atomic<int> stop_count_ = 0;
  std::mutex stop_mutex_;   // for the stop signals that an agent gets, each once
  bool connected_ = false;  // guarded by stop_mutex_: an agent has accepted this front
};

}  // namespace ds::cli
