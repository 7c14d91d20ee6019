#include "daemon/loop/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>
#include <vector>

namespace ds::daemon {
namespace {

sigset_t MakeSignalSet() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  return set;
}

}  // namespace

void BlockLoopSignals() {
  const sigset_t set = MakeSignalSet();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

StatusOr<UniqueFd> OpenLoopSignals() {
  const sigset_t set = MakeSignalSet();
  UniqueFd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.valid()) return ErrnoError(errno, "signalfd");
  return signals;
}

StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return ErrnoError(errno, "epoll_create1");
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoError(errno, "eventfd");
  std::unique_ptr<EventLoop> loop(new EventLoop(std::move(epoll), std::move(wake)));
  EventLoop* raw = loop.get();
  DS_RETURN_IF_ERROR(loop->Add(raw->wake_.get(), [raw] { raw->RunPosted(); }));
  return loop;
}

Status EventLoop::Add(int fd, Handler handler) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return ErrnoError(errno, "epoll");
  handlers_[fd] = std::make_shared<Handler>(std::move(handler));
  return OkStatus();
}

void EventLoop::Remove(int fd) {
  if (handlers_.erase(fd) > 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

EventLoop::TimerId EventLoop::CallAt(TimePoint when, Handler handler) {
  const TimerId id(when, next_timer_++);
  timers_.emplace(id, std::move(handler));
  return id;
}

bool EventLoop::Post(Handler work) {
  {
    const std::lock_guard lock(posted_mutex_);
    if (ended_) return false;
    posted_.push_back(std::move(work));
  }
  ::eventfd_write(wake_.get(), 1);
  return true;
}

Status EventLoop::Run() {
  std::array<epoll_event, 128> events;
  while (!quit_) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   ComputeTimeout());
    if (count < 0 && errno != EINTR) return ErrnoError(errno, "epoll_wait");
    HandleReady({events.data(), static_cast<std::size_t>(std::max(count, 0))});
    RunTimers();
  }
  {
    const std::lock_guard lock(posted_mutex_);
    ended_ = true;
  }
  RunPosted();
  return OkStatus();
}

void EventLoop::HandleReady(std::span<const epoll_event> events) {
  // An earlier handler of this round may have removed it and added another under the same number.
  std::vector<std::pair<int, std::shared_ptr<Handler>>> ready;
  for (const epoll_event& event : events) {
    const auto found = handlers_.find(event.data.fd);
    if (found != handlers_.end()) ready.emplace_back(*found);
  }
  for (const auto& [fd, handler] : ready) {
    const auto found = handlers_.find(fd);
    if (found != handlers_.end() && found->second == handler) (*handler)();
  }
}

int EventLoop::ComputeTimeout() const {
  if (timers_.empty()) return -1;
  const auto left = timers_.begin()->first.first - std::chrono::steady_clock::now();
  if (left <= left.zero()) return 0;
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

void EventLoop::RunTimers() {
  // Read the clock once, so that a timer set for "now" by a handler runs after descriptors.
  const TimePoint now = std::chrono::steady_clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    const Handler handler = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    handler();
  }
}

void EventLoop::RunPosted() {
  eventfd_t ignored = 0;
  ::eventfd_read(wake_.get(), &ignored);
  std::vector<Handler> work;
  {
    const std::lock_guard lock(posted_mutex_);
    work.swap(posted_);
  }
  for (const Handler& handler : work) handler();
}

}  // namespace ds::daemon
