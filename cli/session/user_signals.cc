#include "cli/session/user_signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <utility>

namespace ds::cli {
namespace {

// A blocked signal is delivered to a signalfd even when it is ignored.
bool IsIgnored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

UserSignals::UserSignals() {
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

void UserSignals::Loop() {
  std::array<pollfd, 2> watched = {pollfd{signals_.get(), POLLIN, 0},
                                   pollfd{quit_.get(), POLLIN, 0}};
  for (;;) {
    if (::poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) return;
    if ((watched[1].revents & POLLIN) != 0) return;
    signalfd_siginfo info{};
    if ((watched[0].revents & POLLIN) != 0 &&
        ::read(signals_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
      Deliver(static_cast<int>(info.ssi_signo));
    }
  }
}

void UserSignals::Deliver(int signal) {
  const std::lock_guard lock(mutex_);
  if (target_) {
    target_(signal);
  } else {
    waiting_.push_back(signal);
  }
}

void UserSignals::SetTarget(std::function<void(int)> target) {
  const std::lock_guard lock(mutex_);
  target_ = std::move(target);
  if (!target_) return;
  for (const int signal : std::exchange(waiting_, {})) target_(signal);
}

}  // namespace ds::cli
