#include "cli/console/backlog_writer.h"

#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "runtime/base/files.h"

namespace ds::cli {

BacklogWriter::BacklogWriter(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

BacklogWriter::~BacklogWriter() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    work_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void BacklogWriter::WriteLines(int fd, std::string text) {
  const std::lock_guard lock(mutex_);
  if (IsFull(text)) {
    const auto lines = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
    unreported_drops_ += lines;
    dropped_lines_ += lines;
    return;
  }
  ReportDrops();
  Queue(fd, std::move(text));
}

bool BacklogWriter::WriteRows(int fd, std::string text) {
  const std::lock_guard lock(mutex_);
  if (IsFull(text)) return false;
  ReportDrops();
  Queue(fd, std::move(text));
  return true;
}

void BacklogWriter::WriteAlways(int fd, std::string text) {
  const std::lock_guard lock(mutex_);
  Queue(fd, std::move(text));
}

void BacklogWriter::Flush() {
  std::unique_lock lock(mutex_);
  drained_.wait(lock, [this] { return queued_bytes_ == 0; });
}

std::uint64_t BacklogWriter::dropped_lines() const {
  const std::lock_guard lock(mutex_);
  return dropped_lines_;
}

bool BacklogWriter::IsFull(const std::string& text) const {
  return queued_bytes_ + text.size() > limit_bytes_;
}

void BacklogWriter::Queue(int fd, std::string text) {
  if (text.empty()) return;
  queued_bytes_ += text.size();
  // One write for what has piled up: a terminal costs by the call.
  if (!backlog_.empty() && backlog_.back().fd == fd) {
    backlog_.back().text += text;
  } else {
    backlog_.push_back({fd, std::move(text)});
  }
  if (thread_.joinable()) return work_.notify_one();
  try {
    thread_ = std::thread([this] { Loop(); });
  } catch (const std::system_error&) {
    WriteBacklog();
  }
}

void BacklogWriter::WriteBacklog() {
  for (const Output& output : std::exchange(backlog_, {})) {
    static_cast<void>(WriteAll(output.fd, output.text, "console").ok());
  }
  queued_bytes_ = 0;
}

void BacklogWriter::ReportDrops() {
  const std::uint64_t lines = std::exchange(unreported_drops_, 0);
  if (lines == 0) return;
  Queue(STDERR_FILENO, "dsrun: " + std::to_string(lines) +
                           " lines are not shown here because the console was blocked; the run "
                           "directory has them\n");
}

void BacklogWriter::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return !backlog_.empty() || ending_; });
    if (backlog_.empty()) return;
    const Output output = std::move(backlog_.front());
    backlog_.pop_front();
    lock.unlock();
    // A closed pipe loses the console, not the job: the run directory has everything.
    static_cast<void>(WriteAll(output.fd, output.text, "console").ok());
    lock.lock();
    queued_bytes_ -= output.text.size();
    if (backlog_.empty()) ReportDrops();
    if (queued_bytes_ == 0) drained_.notify_all();
  }
}

}  // namespace ds::cli
