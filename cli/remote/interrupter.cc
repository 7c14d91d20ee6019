#include "cli/remote/interrupter.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace ds::cli {

Interrupter::Interrupter() : event_(::eventfd(0, EFD_CLOEXEC)) {}

Interrupter::~Interrupter() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Interrupter::Interrupt() {
  {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
  }
  const std::uint64_t one = 1;
  static_cast<void>(
      !::write(event_.get(), &one, sizeof(one)));  // the 64-bit counter cannot overflow
  changed_.notify_all();
}

bool Interrupter::interrupted() const {
  const std::lock_guard lock(mutex_);
  return interrupted_;
}

bool Interrupter::Sleep(std::chrono::milliseconds duration) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, duration, [this] { return interrupted_; });
}

void Interrupter::StartLoop() {
  if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
}

void Interrupter::Loop() {
  std::unique_lock lock(mutex_);
  while (!quit_) {
    Deadline next = Deadline::max();
    const Deadline now = std::chrono::steady_clock::now();
    for (Watched& each : watched_) {
      if (!each.shut && (interrupted_ || each.deadline <= now)) {
        each.shut = true;
        ::shutdown(each.socket.get(), SHUT_RDWR);
      }
      if (!each.shut) next = std::min(next, each.deadline);
    }
    if (next == Deadline::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, next);
    }
  }
}

Interrupter::Guard::Guard(Interrupter* interrupter, int socket, Deadline deadline)
    : interrupter_(interrupter) {
  const std::lock_guard lock(interrupter_->mutex_);
  interrupter_->StartLoop();
  interrupter_->watched_.push_front(
      {UniqueFd(::fcntl(socket, F_DUPFD_CLOEXEC, 0)), deadline, false});
  watched_ = interrupter_->watched_.begin();
  interrupter_->changed_.notify_all();
}

Interrupter::Guard::~Guard() {
  const std::lock_guard lock(interrupter_->mutex_);
  interrupter_->watched_.erase(watched_);
}

void Interrupter::Guard::SetDeadline(Deadline deadline) {
  const std::lock_guard lock(interrupter_->mutex_);
  watched_->deadline = deadline;
  interrupter_->changed_.notify_all();
}

bool Interrupter::Guard::fired() const {
  const std::lock_guard lock(interrupter_->mutex_);
  return watched_->shut;
}

}  // namespace ds::cli
