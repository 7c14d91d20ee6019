#include "cli/console/backlog_writer.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/base/byte_size.h"
#include "runtime/base/files.h"

namespace ds::cli {
namespace {

// The maximum size of one write, so that progress is visible. On a terminal each call is expensive.
constexpr std::size_t kPieceBytes = std::size_t{64} << 10;
// A writable descriptor accepts this many bytes without blocking the caller.
constexpr std::size_t kReadyBytes = 256;

bool IsRegularFile(int fd) {
  struct stat file {};
  return ::fstat(fd, &file) == 0 && S_ISREG(file.st_mode);
}

// Writes the part of `text` that `fd` accepts without blocking.
void WriteNonBlocking(int fd, std::string_view text) {
  while (!text.empty()) {
    pollfd writable{fd, POLLOUT, 0};
    if (::poll(&writable, 1, 0) != 1 || (writable.revents & POLLOUT) == 0) return;
    const ssize_t written = ::write(fd, text.data(), std::min(text.size(), kReadyBytes));
    if (written < 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

struct BacklogWriter::Backlog {
  struct Output {
    int fd;
    std::string text;
  };

  void Loop();
  void Write(int fd, std::string_view text);
  // The functions below require the mutex.
  bool IsFull(int fd, const std::string& text) const {
    return queued_bytes + text.size() > limit_bytes && !is_file(fd);
  }
  void Add(int fd, std::string text);
  void Drop(const std::string& text);
  // Returns a line about the text dropped since the last one; "" if nothing was dropped.
  std::string TakeReport();

  // The standard streams are looked up once: fstat may hang with its file system.
  bool is_file(int fd) const {
    if (fd == STDOUT_FILENO) return out_is_file;
    return fd == STDERR_FILENO ? err_is_file : IsRegularFile(fd);
  }

  std::size_t limit_bytes = 0;
  const bool out_is_file = IsRegularFile(STDOUT_FILENO);
  const bool err_is_file = IsRegularFile(STDERR_FILENO);
  std::mutex mutex;                 // guards all members below
  std::condition_variable work;     // outputs, ending or given_up changed
  std::condition_variable drained;  // queued_bytes is smaller; or given_up
  std::deque<Output> outputs;
  int busy_fd = -1;                    // the thread is writing to it
  std::size_t queued_bytes = 0;        // in outputs and in the one being written
  std::uint64_t written_bytes = 0;     // by the thread
  std::uint64_t unreported_lines = 0;  // dropped lines without a report
  std::uint64_t unreported_bytes = 0;
  std::uint64_t all_dropped = 0;  // lines
  bool ending = false;
  bool given_up = false;

  std::atomic<bool> reported_full = false;
};

// A closed pipe loses the console, not the job: the run directory has everything. A full disk is
// reported, because a user who reads the file later could take it for the full output.
void BacklogWriter::Backlog::Write(int fd, std::string_view text) {
  const Status written = WriteAll(fd, text, "console");
  if (written.code() != StatusCode::kResourceExhausted || reported_full.exchange(true)) return;
  WriteNonBlocking(STDERR_FILENO,
                   "dsrun: " + written.message() + "; the run directory has the missing output\n");
}

void BacklogWriter::Backlog::Add(int fd, std::string text) {
  queued_bytes += text.size();
  // Appends to the last output of the same stream, because each write to a terminal is expensive.
  if (!outputs.empty() && outputs.back().fd == fd) {
    outputs.back().text += text;
  } else {
    outputs.push_back({fd, std::move(text)});
  }
}

void BacklogWriter::Backlog::Drop(const std::string& text) {
  const auto lines = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
  unreported_lines += lines;
  unreported_bytes += text.size();
  all_dropped += lines;
}

std::string BacklogWriter::Backlog::TakeReport() {
  const std::uint64_t lines = std::exchange(unreported_lines, 0);
  const std::uint64_t bytes = std::exchange(unreported_bytes, 0);
  if (bytes == 0) return "";
  return "dsrun: " + std::to_string(lines) + (lines == 1 ? " line, " : " lines, ") +
         ByteSize(bytes) + (lines == 1 ? ", is" : ", are") +
         " not shown here because the console was blocked; the run directory has all\n";
}

void BacklogWriter::Backlog::Loop() {
  std::unique_lock lock(mutex);
  for (;;) {
    work.wait(lock, [this] { return !outputs.empty() || ending || given_up; });
    if (outputs.empty() || given_up) return;
    const Output output = std::move(outputs.front());
    outputs.pop_front();
    busy_fd = output.fd;
    for (std::string_view rest = output.text; !rest.empty() && !given_up;) {
      const std::string_view piece = rest.substr(0, kPieceBytes);
      lock.unlock();
      Write(output.fd, piece);
      lock.lock();
      rest.remove_prefix(piece.size());
      written_bytes += piece.size();
    }
    busy_fd = -1;
    queued_bytes -= output.text.size();
    if (given_up) return;
    if (outputs.empty()) {
      if (std::string report = TakeReport(); !report.empty()) Add(STDERR_FILENO, std::move(report));
    }
    drained.notify_all();
  }
}

BacklogWriter::BacklogWriter(std::size_t limit_bytes) : backlog_(std::make_shared<Backlog>()) {
  backlog_->limit_bytes = limit_bytes;
}

BacklogWriter::~BacklogWriter() {
  bool given_up = false;
  {
    const std::lock_guard lock(backlog_->mutex);
    backlog_->ending = true;
    given_up = backlog_->given_up;
    backlog_->work.notify_one();
  }
  if (!thread_.joinable()) return;
  if (given_up) {
    thread_.detach();  // it may be in a write that never returns
  } else {
    thread_.join();
  }
}

void BacklogWriter::Start() {
  const std::lock_guard lock(backlog_->mutex);
  StartThread();
}

void BacklogWriter::StartThread() {
  if (!thread_.joinable()) thread_ = std::thread([backlog = backlog_] { backlog->Loop(); });
}

void BacklogWriter::WriteLines(int fd, std::string text) {
  const std::lock_guard lock(backlog_->mutex);
  if (backlog_->IsFull(fd, text)) return backlog_->Drop(text);
  Queue(STDERR_FILENO, backlog_->TakeReport());
  Queue(fd, std::move(text));
}

bool BacklogWriter::WriteRows(int fd, std::string text) {
  const std::lock_guard lock(backlog_->mutex);
  if (backlog_->IsFull(fd, text)) return false;
  Queue(STDERR_FILENO, backlog_->TakeReport());
  Queue(fd, std::move(text));
  return true;
}

void BacklogWriter::WriteAlways(int fd, std::string text) {
  const std::lock_guard lock(backlog_->mutex);
  Queue(fd, std::move(text));
}

void BacklogWriter::AwaitRoom() {
  std::unique_lock lock(backlog_->mutex);
  backlog_->drained.wait(lock, [this] {
    return backlog_->queued_bytes <= backlog_->limit_bytes || backlog_->given_up;
  });
}

void BacklogWriter::Flush() {
  std::unique_lock lock(backlog_->mutex);
  backlog_->drained.wait(lock,
                         [this] { return backlog_->queued_bytes == 0 || backlog_->given_up; });
}

void BacklogWriter::GiveUp() {
  const std::lock_guard lock(backlog_->mutex);
  if (backlog_->queued_bytes == 0 || std::exchange(backlog_->given_up, true)) return;
  std::deque<Backlog::Output> outputs = std::exchange(backlog_->outputs, {});
  outputs.push_back({STDERR_FILENO,
                     "dsrun: the console is blocked and dsrun no longer waits for it: the run "
                     "directory has the output that is not shown\n"});
  for (const Backlog::Output& output : outputs) {
    const bool may_hang = output.fd == backlog_->busy_fd || backlog_->is_file(output.fd);
    if (!may_hang) WriteNonBlocking(output.fd, output.text);
  }
  backlog_->work.notify_one();
  backlog_->drained.notify_all();
}

std::uint64_t BacklogWriter::dropped_lines() const {
  const std::lock_guard lock(backlog_->mutex);
  return backlog_->all_dropped;
}

std::uint64_t BacklogWriter::written_bytes() const {
  const std::lock_guard lock(backlog_->mutex);
  return backlog_->written_bytes;
}

void BacklogWriter::Queue(int fd, std::string text) {
  if (text.empty() || backlog_->given_up) return;
  backlog_->Add(fd, std::move(text));
  try {
    StartThread();
    backlog_->work.notify_one();
  } catch (const std::system_error&) {
    for (const Backlog::Output& output : std::exchange(backlog_->outputs, {})) {
      backlog_->Write(output.fd, output.text);
    }
    backlog_->queued_bytes = 0;
  }
}

}  // namespace ds::cli
