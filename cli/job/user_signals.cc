#include "cli/job/user_signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <string_view>
#include <system_error>

#include "cli/host/deadlines.h"

namespace ds::cli {
namespace {

// A blocked signal is delivered to a signalfd even when it is ignored.
bool IsIgnored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// A blocked console gets no message: a pipe or terminal that is full, or a file on a file system
// that hangs, where even poll may wait.
[[noreturn]] void EndAtOnce(int status) {
  static constexpr std::string_view kText =
      "dsrun: forced end: the daemons of this machine are killed; those of other hosts end the "
      "job's processes there\n";
  std::promise<void> said;
  const std::future<void> end = said.get_future();
  try {
    std::thread([said = std::move(said)]() mutable {
      pollfd console{STDERR_FILENO, POLLOUT, 0};
      if (::poll(&console, 1, 0) == 1 && (console.revents & POLLOUT) != 0) {
        static_cast<void>(!::write(STDERR_FILENO, kText.data(), kText.size()));
      }
      said.set_value();
    }).detach();
    end.wait_for(deadlines::kLastWords);
  } catch (const std::system_error&) {  // a machine without another thread: without words
  }
  std::_Exit(status);
}

}  // namespace

UserSignals::UserSignals(std::function<void(int)> on_own) : on_own_(std::move(on_own)) {
  sigemptyset(&watched_);
  for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2}) sigaddset(&watched_, signal);
  for (const int signal : {SIGINT, SIGHUP}) {
    if (!IsIgnored(signal)) sigaddset(&watched_, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &watched_, nullptr);
}

Status UserSignals::Listen() {
  signals_.Reset(::signalfd(-1, &watched_, SFD_CLOEXEC));
  if (!signals_.valid()) return ErrnoError(errno, "signalfd");
  timer_.Reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  if (!timer_.valid()) return ErrnoError(errno, "timerfd_create");
  end_.Reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  if (!end_.valid()) return ErrnoError(errno, "timerfd_create");
  quit_.Reset(::eventfd(0, EFD_CLOEXEC));
  if (!quit_.valid()) return ErrnoError(errno, "eventfd");
  thread_ = std::thread([this] { Loop(); });
  return OkStatus();
}

UserSignals::~UserSignals() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  // An eventfd with a counter of 0 always takes a 1.
  static_cast<void>(!::write(quit_.get(), &one, sizeof(one)));
  thread_.join();
}

void UserSignals::StartTimer(std::chrono::seconds timeout) {
  itimerspec when{};
  when.it_value.tv_sec = timeout.count();
  ::timerfd_settime(timer_.get(), 0, &when, nullptr);  // of these arguments it refuses none
}

void UserSignals::EndBy(std::chrono::milliseconds timeout, int status) {
  if (ends_.exchange(true)) return;
  int none = kNoStatus;
  end_status_.compare_exchange_strong(none, status);
  itimerspec when{};
  when.it_value.tv_sec = timeout.count() / 1000;
  when.it_value.tv_nsec = timeout.count() % 1000 * 1'000'000;
  ::timerfd_settime(end_.get(), 0, &when, nullptr);
}

void UserSignals::Loop() {
  std::array watched = {pollfd{signals_.get(), POLLIN, 0}, pollfd{timer_.get(), POLLIN, 0},
                        pollfd{quit_.get(), POLLIN, 0}, pollfd{end_.get(), POLLIN, 0}};
  const auto is_ready = [&](std::size_t at) { return (watched[at].revents & POLLIN) != 0; };
  for (;;) {
    if (::poll(watched.data(), watched.size(), -1) < 0) {
      if (errno != EINTR) return;
      continue;
    }
    if (is_ready(2)) return;
    if (is_ready(3)) End();
    signalfd_siginfo info{};
    if (is_ready(0) && ::read(signals_.get(), &info, sizeof(info)) == ssize_t{sizeof(info)}) {
      if (on_own_) on_own_(static_cast<int>(info.ssi_signo));
      Deliver(static_cast<int>(info.ssi_signo));
    }
    std::uint64_t expirations = 0;
    if (is_ready(1) && ::read(timer_.get(), &expirations, sizeof(expirations)) > 0) OnTimer();
  }
}

void UserSignals::Deliver(int signal) {
  const std::lock_guard lock(mutex_);
  if (target_.on_signal) {
    target_.on_signal(signal);
  } else {
    waiting_.push_back(signal);
  }
}

void UserSignals::OnTimer() {
  const std::lock_guard lock(mutex_);
  if (target_.on_timer) target_.on_timer();
}

void UserSignals::End() {
  const std::lock_guard lock(mutex_);
  if (target_.on_end) target_.on_end();
  EndAtOnce(end_status_);
}

void UserSignals::SetTarget(Target target) {
  const std::lock_guard lock(mutex_);
  target_ = std::move(target);
  if (!target_.on_signal) return;
  for (const int signal : std::exchange(waiting_, {})) target_.on_signal(signal);
}

}  // namespace ds::cli
