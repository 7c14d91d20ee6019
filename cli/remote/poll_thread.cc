#include "cli/remote/poll_thread.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

namespace ds::cli {
namespace {

bool IsReady(std::span<const pollfd> watched) {
  return std::any_of(watched.begin(), watched.end(),
                     [](const pollfd& each) { return each.revents != 0; });
}

}  // namespace

StatusOr<std::shared_ptr<PollThread>> PollThread::Get() {
  static std::mutex mutex;
  static std::weak_ptr<PollThread> existing;
  const std::lock_guard lock(mutex);
  std::shared_ptr<PollThread> thread = existing.lock();
  if (thread != nullptr) return thread;
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoError(errno, "eventfd");
  thread.reset(new PollThread(std::move(wake)));
  existing = thread;
  return thread;
}

PollThread::PollThread(UniqueFd wake) : wake_(std::move(wake)), thread_([this] { Loop(); }) {}

PollThread::~PollThread() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
    Change();
  }
  thread_.join();
}

void PollThread::Add(PollMember* member) {
  const std::lock_guard lock(mutex_);
  members_.push_back(member);
  Change();
}

void PollThread::Remove(PollMember* member) {
  const std::lock_guard lock(mutex_);
  std::erase(members_, member);
  Change();
}

void PollThread::Change() {
  ++changes_;
  ::eventfd_write(wake_.get(), 1);
}

void PollThread::Loop() {
  std::unique_lock lock(mutex_);
  while (!quit_) {
    std::vector<pollfd> watched = {{wake_.get(), POLLIN, 0}};
    std::vector<std::size_t> ends;  // by member
    for (PollMember* const member : members_) {
      member->AddWatched(&watched);
      ends.push_back(watched.size());
    }
    const std::uint64_t changes = changes_;
    lock.unlock();
    const int count = ::poll(watched.data(), watched.size(), -1);
    lock.lock();
    eventfd_t ignored = 0;
    ::eventfd_read(wake_.get(), &ignored);
    // The members have changed, so a descriptor may belong to another one now. The next poll
    // reports the events that are still pending.
    if (count <= 0 || changes != changes_) continue;
    std::vector<PollMember*> left;
    std::size_t begin = 1;
    for (std::size_t i = 0; i < members_.size(); begin = ends[i++]) {
      const auto own = std::span<const pollfd>(watched).subspan(begin, ends[i] - begin);
      if (!IsReady(own) || members_[i]->OnReady(own)) left.push_back(members_[i]);
    }
    members_ = std::move(left);
  }
}

}  // namespace ds::cli
