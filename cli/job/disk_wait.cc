#include "cli/job/disk_wait.h"

#include <utility>

namespace ds::cli {

void DiskWait::Listen(Notice notice) {
  const std::lock_guard lock(mutex_);
  notice_ = std::move(notice);
}

Status DiskWait::Repeat(const std::function<LogFile::Appended()>& write) {
  LogFile::Appended written = write();
  if (!written.is_full) return written.status;
  Tell(written.status.message() + "; the job waits until there is space again");
  while (written.is_full && WaitForInterval()) written = write();
  if (written.status.ok()) Tell("the disk of the run directory has space again; the job continues");
  return written.status;
}

void DiskWait::GiveUp() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  changed_.notify_all();
}

void DiskWait::Tell(const std::string& text) {
  Notice notice;
  {
    const std::lock_guard lock(mutex_);
    notice = notice_;
  }
  if (notice) notice(text);
}

bool DiskWait::WaitForInterval() {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, interval_, [this] { return given_up_; });
}

}  // namespace ds::cli
