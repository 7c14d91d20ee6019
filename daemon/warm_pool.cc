#include "daemon/warm_pool.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <system_error>
#include <utility>

#include "daemon/loop/loop_signals.h"
#include "proto/warm_socket.h"
#include "runtime/base/log.h"
#include "runtime/process/spawn_session.h"
#include "runtime/process/unix_socket.h"

namespace ds::daemon {
namespace {

namespace fs = std::filesystem;

// A job has started by then, and most users need longer for their next one.
constexpr std::chrono::milliseconds kRefillAfter{100};

}  // namespace

StatusOr<std::unique_ptr<WarmPool>> WarmPool::Create(EventLoop* loop, WarmPoolOptions options) {
  std::unique_ptr<WarmPool> pool(new WarmPool(loop, options));
  DS_RETURN_IF_ERROR(pool->Lock());
  DS_RETURN_IF_ERROR(pool->Listen());
  DS_RETURN_IF_ERROR(pool->WatchSignals());
  pool->Fill();
  return pool;
}

WarmPool::~WarmPool() {
  if (refill_) loop_->CancelTimer(*refill_);
  if (watching_listener_) loop_->Remove(listener_.get());
  if (signals_.valid()) loop_->Remove(signals_.get());
  for (const auto& [fd, owned] : waiting_) loop_->Remove(fd);
  waiting_.clear();
  if (!listener_.valid()) return;
  std::error_code ignored;
  fs::remove(WarmSocket(), ignored);
  fs::remove(WarmFolder(), ignored);
}

std::string WarmPool::socket() const { return WarmSocket().string(); }

// The folder itself is the lock: whoever holds it may replace a socket that a killed pool left.
Status WarmPool::Lock() {
  const fs::path folder = WarmFolder();
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return ErrnoError(errno, folder.string());
  }
  DS_RETURN_IF_ERROR(CheckPrivateFolder(folder));
  lock_.Reset(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!lock_.valid()) return ErrnoError(errno, folder.string());
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return AlreadyExistsError("another dsrund --serve has " + folder.string());
  }
  return OkStatus();
}

Status WarmPool::Listen() {
  std::error_code ignored;
  fs::remove(WarmSocket(), ignored);
  DS_ASSIGN_OR_RETURN(listener_, ListenUnix(WarmSocket()));
  return OkStatus();
}

Status WarmPool::WatchSignals() {
  DS_ASSIGN_OR_RETURN(signals_, OpenLoopSignals());
  return loop_->Add(signals_.get(), [this] { OnSignal(); });
}

void WarmPool::OnSignal() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    if (info.ssi_signo != SIGCHLD) loop_->Quit();
  }
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

void WarmPool::Fill() {
  if (refill_) loop_->CancelTimer(*refill_);
  refill_.reset();
  if (watching_listener_) loop_->Remove(listener_.get());
  watching_listener_ = false;
  while (static_cast<int>(waiting_.size()) < options_.waiting) {
    if (const Status started = StartOne(); !started.ok()) {
      LogError(started.message());
      return AwaitNeed();
    }
  }
}

Status WarmPool::StartOne() {
  DS_ASSIGN_OR_RETURN(SocketPair pair, MakeSocketPair());
  const std::array inherited = {InheritedFd{listener_.get(), kInheritedListener},
                                InheritedFd{pair.theirs.get(), kInheritedOwner}};
  // This very file, whatever lies at its path by now.
  const Status spawned =
      SpawnInNewSession("/proc/self/exe", {"dsrund", "--wait_for_job"}, inherited).status();
  if (!spawned.ok()) return spawned.WithContext("starting a waiting daemon");
  const int fd = pair.ours.get();
  DS_RETURN_IF_ERROR(loop_->Add(fd, [this, fd] { OnTaken(fd); }));
  waiting_[fd] = std::move(pair.ours);
  return OkStatus();
}

void WarmPool::OnTaken(int notice_fd) {
  loop_->Remove(notice_fd);
  waiting_.erase(notice_fd);
  AwaitNeed();
}

void WarmPool::AwaitNeed() {
  if (!refill_) {
    refill_ = loop_->CallAt(std::chrono::steady_clock::now() + kRefillAfter, [this] {
      refill_.reset();
      Fill();
    });
  }
  if (!waiting_.empty() || watching_listener_) return;
  // Nobody waits: the next controller that connects is what to start one for.
  watching_listener_ = loop_->Add(listener_.get(), [this] { Fill(); }).ok();
}

}  // namespace ds::daemon
