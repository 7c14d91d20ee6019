#include "cli/front/input_forwarder.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

#include "cli/host/host_daemon.h"
#include "runtime/process/thread_quota.h"

namespace ds::cli {
namespace {

// A pipe holds as much: a rank that reads slowly makes us wait no longer than that.
constexpr std::size_t kReadBytes = 64 * 1024;

// Nothing tells a process that it has come to the foreground of its terminal.
constexpr int kForegroundLookMilliseconds = 200;

// Between tries while the way to rank 0's host is broken.
constexpr int kRetryMilliseconds = 200;

// The position in a file; -1 for what cannot be read twice.
std::int64_t FilePosition(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? ::lseek(fd, 0, SEEK_CUR) : -1;
}

bool IsDevNull(const struct stat& info) {
  return S_ISCHR(info.st_mode) && info.st_rdev == makedev(1, 3);
}

}  // namespace

bool HasInput(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && !IsDevNull(info);
}

InputForwarder::InputForwarder(int fd)
    : fd_(fd), terminal_(::isatty(fd) == 1), start_(FilePosition(fd)) {}

Status InputForwarder::Start(Send send) {
  quit_.Reset(::eventfd(0, EFD_CLOEXEC));
  if (!quit_.valid()) return ErrnoError(errno, "eventfd");
  chunk_.offset = 0;
  if (start_ >= 0) {
    ::lseek(fd_, start_, SEEK_SET);
    chunk_ = {};
  }
  begin_.emplace();
  try {
    thread_ = std::thread([this, send = std::move(send), begin = begin_->get_future()]() mutable {
      if (begin.get()) Loop(send);
    });
  } catch (const std::system_error& error) {
    return OutOfResourcesError("no thread to read it: " + error.code().message());
  }
  return OkStatus();
}

void InputForwarder::Begin() {
  begin_->set_value(true);
  begin_.reset();
}

void InputForwarder::Stop() {
  if (!thread_.joinable()) return;
  if (begin_) begin_->set_value(false);
  begin_.reset();
  ::eventfd_write(quit_.get(), 1);
  thread_.join();
}

void InputForwarder::Loop(const Send& send) {
  // A read from the background is then an error instead of a stop.
  sigset_t background;
  sigemptyset(&background);
  sigaddset(&background, SIGTTIN);
  ::pthread_sigmask(SIG_BLOCK, &background, nullptr);
  while (AwaitInput()) {
    if (chunk_.data.empty() && !chunk_.end && !Read()) continue;
    const StatusOr<std::uint64_t> taken = send(chunk_);
    if (!taken.ok()) {
      if (!NobodyAnswered(taken.status()) || QuitWithin(kRetryMilliseconds)) return;
      continue;
    }
    chunk_.offset += *taken;
    chunk_.data.erase(0, *taken);
    if (chunk_.data.empty() && chunk_.end) return;
  }
}

bool InputForwarder::QuitWithin(int milliseconds) const {
  pollfd quit{quit_.get(), POLLIN, 0};
  return ::poll(&quit, 1, milliseconds) > 0;
}

bool InputForwarder::AwaitInput() const {
  std::array<pollfd, 2> watched = {pollfd{quit_.get(), POLLIN, 0}, pollfd{fd_, POLLIN, 0}};
  while (true) {
    const bool readable = !terminal_ || InForeground();
    const bool waiting = !chunk_.data.empty() || chunk_.end;  // for room, not for input
    const int count = ::poll(watched.data(), readable && !waiting ? 2 : 1,
                             waiting    ? 0
                             : readable ? -1
                                        : kForegroundLookMilliseconds);
    if (count < 0 && errno != EINTR) return false;
    if (count >= 0 && (watched[0].revents & POLLIN) != 0) return false;
    if (waiting || (count > 0 && readable)) return true;
  }
}

bool InputForwarder::InForeground() const { return ::tcgetpgrp(fd_) == ::getpgrp(); }

bool InputForwarder::Read() {
  std::string data(kReadBytes, '\0');
  const ssize_t got = ::read(fd_, data.data(), data.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN || (errno == EIO && terminal_))) return false;
  data.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  chunk_.data = std::move(data);
  chunk_.end = got <= 0;
  return true;
}

}  // namespace ds::cli
