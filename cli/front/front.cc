#include "cli/front/front.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <system_error>
#include <utility>

#include "cli/front/job_view.h"
#include "cli/host/deadlines.h"
#include "cli/job/final_status.h"
#include "cli/job/generation_state.h"
#include "cli/job/verdict/make_verdict.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/process/thread_quota.h"

namespace ds::cli {
namespace {

bool IsRegularFile(int fd) {
  struct stat file {};
  return ::fstat(fd, &file) == 0 && S_ISREG(file.st_mode);
}

}  // namespace

Front::Front(FrontOptions options)
    : options_(std::move(options)),
      console_(options_.console, &writer_),
      input_(STDIN_FILENO),
      lossless_(IsRegularFile(STDOUT_FILENO) || IsRegularFile(STDERR_FILENO)) {
  ::signal(SIGPIPE, SIG_IGN);  // a closed console must not end the job
}

Front::~Front() {
  link_.EndInput();
  input_.Stop();
}

Status Front::Begin() try {
  DS_RETURN_IF_ERROR(signals_.Listen());
  writer_.Start();
  return OkStatus();
} catch (const std::system_error& error) {
  return OutOfResourcesError(std::string("no thread for signals or output: ") + error.what());
}

std::optional<int> Front::Run(UniqueFd agent) {
  Connect(std::move(agent));
  {
    const SignalTarget target(&signals_, {.on_signal = [this](int signal) { OnSignal(signal); },
                                          .on_end =
                                              [this] {
                                                if (options_.kill_agent) options_.kill_agent();
                                              }});
    Receive();
  }
  if (left_) return ExitStatusOfSignal(SIGHUP);
  if (phase_ == Phase::kRunning) return std::nullopt;
  AwaitConsole();
  return status_;
}

void Front::Connect(UniqueFd agent) {
  v1::FrontHello hello;
  hello.set_shows_job(true);
  hello.set_lossless(lossless_);
  link_.Open(std::move(agent));
  link_.SendHello(hello);
}

void Front::Receive() {
  while (phase_ != Phase::kDetached) {
    const std::optional<v1::FromAgent> message = link_.Receive();
    if (message.has_value()) {
      Handle(*message);
      continue;
    }
    if (phase_ == Phase::kEnded || left_ || !options_.await_successor) return;
    {
      const std::lock_guard lock(stop_mutex_);
      connected_ = false;
    }
    StatusOr<UniqueFd> connection = options_.await_successor();
    if (!connection.ok()) return;
    Connect(*std::move(connection));
  }
}

// Signals that an agent has not received before it was killed are for the next one.
void Front::OnHello(const v1::AgentHello& hello) {
  {
    const std::lock_guard lock(stop_mutex_);
    connected_ = true;
    for (int i = static_cast<int>(hello.stop_count()); i < stop_count_; ++i) {
      link_.SendSignal(stop_signal_);
    }
  }
  if (std::exchange(greeted_, true)) {
    if (detaches_) SendDetach();
    console_.ShowNotice("the agent of the job was ended by signal " +
                        std::to_string(hello.killed_by()) +
                        "; another one has taken over, and the ranks go on; output that was on "
                        "its way here is in the run directory only");
  } else if (!options_.greeting.empty()) {
    console_.ShowNotice(options_.greeting);
  }
}

bool Front::IsNew(const v1::JobEvent& event) {
  const std::pair<int, std::uint64_t> position{event.generation(), event.event().sequence()};
  const auto [shown, is_first] = shown_.try_emplace(event.host(), position);
  if (is_first) return true;
  if (position <= shown->second) return false;
  shown->second = position;
  return true;
}

void Front::Handle(const v1::FromAgent& message) {
  if (message.has_event() && !IsNew(message.event())) return;
  ShowOnConsole(message, options_.run_directory.string(), &console_);
  switch (message.what_case()) {
    case v1::FromAgent::kHello:
      return OnHello(message.hello());
    case v1::FromAgent::kEvent:
      return OnEvent(message.event());
    case v1::FromAgent::kInputWanted:
      if (const Status started = StartInput(message.input_wanted().serial()); !started.ok()) {
        console_.ShowWarning("rank 0's standard input: " + started.message());
      }
      return;
    case v1::FromAgent::kInputReply:
      return link_.OnInputReply(message.input_reply());
    case v1::FromAgent::kInputEnd:
      link_.EndInput();
      return input_.Stop();
    case v1::FromAgent::kDetached:
      console_.Finish();
      console_.ShowNotice("detached: the job goes on; `dsrun attach " +
                          ShortenPath(options_.run_directory) + "` shows it again");
      phase_ = Phase::kDetached;
      return;
    case v1::FromAgent::kEnded:
      phase_ = Phase::kEnded;
      status_ = message.ended().exit_code();
      return signals_.SetEndStatus(status_);
    default:
      return;
  }
}

Status Front::StartInput(std::uint64_t serial) {
  if (!options_.reads_input || !link_.BeginInput(serial)) return OkStatus();
  DS_RETURN_IF_ERROR(
      input_.Start([this](const InputPiece& piece) { return link_.SendInput(piece); }));
  input_.Begin();
  return OkStatus();
}

void Front::OnEvent(const v1::JobEvent& event) {
  // A file takes all output: the agent, and then the ranks, wait for a slow one.
  if (lossless_) writer_.AwaitRoom();
  if (options_.detach_after == 0 || !event.event().has_rank_started()) return;
  if (event.generation() != std::exchange(generation_, event.generation())) started_ = 0;
  if (++started_ != options_.detach_after) return;
  detaches_ = true;
  SendDetach();
}

void Front::SendDetach() {
  v1::FromFront message;
  message.mutable_detach();
  link_.Send(message);
}

int Front::ShowVerdict(const Verdict& verdict) {
  console_.Finish();
  console_.ShowVerdict(verdict, options_.run_directory.string());
  writer_.Flush();
  return FinalStatus(verdict, options_.exit_codes);
}

void Front::OnSignal(int signal) {
  if (signal == SIGHUP && options_.leaves_on_hangup) {
    left_ = true;
    return link_.Close();
  }
  if (IsForwarded(signal)) return link_.SendSignal(signal);
  {
    const std::lock_guard lock(stop_mutex_);
    if (stop_signal_ == 0) stop_signal_ = signal;
    ++stop_count_;
    if (connected_) link_.SendSignal(signal);
  }
  if (stop_count_ < 2) return;
  const Verdict verdict = MakeUserStopVerdict(stop_signal_, 0);
  signals_.EndBy(deadlines::kSecondSignal, FinalStatus(verdict, options_.exit_codes));
}

// The job's end is recorded. Only the console is waited for: without a limit, unless the user has
// stopped the job or does it now; then as long as the console takes something.
void Front::AwaitConsole() {
  std::uint64_t written = writer_.written_bytes();
  const auto on_signal = [&](int signal) {
    if (!IsForwarded(signal)) writer_.GiveUp();
  };
  const auto on_timer = [&] {
    const std::uint64_t now = writer_.written_bytes();
    if (std::exchange(written, now) == now) return writer_.GiveUp();
    signals_.StartTimer(deadlines::kConsole);
  };
  const SignalTarget target(&signals_, {.on_signal = on_signal, .on_timer = on_timer});
  if (stop_signal_ != 0) signals_.StartTimer(deadlines::kConsole);
  writer_.Flush();
}

}  // namespace ds::cli
