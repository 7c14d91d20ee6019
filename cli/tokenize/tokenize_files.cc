#include "cli/tokenize/tokenize_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/files.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/tokenizer/corpus/documents.h"

namespace ds::cli {
namespace {

// Beyond this no further text is read: large ones are in memory several times while they are cut.
constexpr std::size_t kMostBytesInFlight = std::size_t{256} << 20;

// TokenFile: a file of token ids, little-endian uint16 or uint32, that is there when it is whole.
// Until Commit it has another name in the same folder, and is gone with the object.
class TokenFile {
 public:
  // `id_bytes` is 2 or 4.
  static StatusOr<TokenFile> Create(const std::filesystem::path& path, int id_bytes);
  TokenFile(TokenFile&& other) noexcept;
  TokenFile& operator=(TokenFile&&) = delete;
  ~TokenFile();

  // Requires ids that fit.
  Status Append(std::span<const std::uint32_t> ids);
  // Puts the file in its place; what was there is replaced.
  Status Commit();

  std::uint64_t count() const { return count_; }

 private:
  TokenFile(std::filesystem::path path, std::filesystem::path temporary, UniqueFd file,
            int id_bytes);

  std::filesystem::path path_, temporary_;  // temporary_ is empty once there is no such file
  UniqueFd file_;
  int id_bytes_;
  std::string buffer_;
  std::uint64_t count_ = 0;
};

StatusOr<TokenFile> TokenFile::Create(const std::filesystem::path& path, int id_bytes) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return ErrnoError(EISDIR, ShortenPath(path));
  const std::filesystem::path temporary = path.string() + ".tmp-" + std::to_string(::getpid());
  UniqueFd file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.valid()) return ErrnoError(errno, ShortenPath(path));
  return TokenFile(path, temporary, std::move(file), id_bytes);
}

TokenFile::TokenFile(std::filesystem::path path, std::filesystem::path temporary, UniqueFd file,
                     int id_bytes)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      file_(std::move(file)),
      id_bytes_(id_bytes) {}

TokenFile::TokenFile(TokenFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::move(other.file_)),
      id_bytes_(other.id_bytes_),
      buffer_(std::move(other.buffer_)),
      count_(other.count_) {}

TokenFile::~TokenFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status TokenFile::Append(std::span<const std::uint32_t> ids) {
  buffer_.clear();
  for (std::uint32_t id : ids) {
    if (id_bytes_ == 2 && id > 0xFFFF) {
      return InvalidArgumentError("id " + std::to_string(id) +
                                  " has no room in 16 bits: give --token_dtype uint32");
    }
    for (int i = 0; i < id_bytes_; ++i, id >>= 8) buffer_ += static_cast<char>(id & 0xFF);
  }
  count_ += ids.size();
  return WriteAll(file_.get(), buffer_, ShortenPath(path_));
}

Status TokenFile::Commit() {
  if (::fsync(file_.get()) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return ErrnoError(errno, ShortenPath(path_));
  }
  temporary_.clear();
  return SyncDirectory(path_.has_parent_path() ? path_.parent_path() : ".");
}

struct Task {
  tokenizer::DocumentBatch batch;
  std::vector<std::uint32_t> ids;
  std::uint64_t texts = 0;
  Status status;
  bool done = false;
};

Status Cut(tokenizer::Encoder& encoder, const TokenizeJob& job, Task* task) {
  const tokenizer::EncodeOptions options{.special_tokens = job.special_tokens, .truncate = false};
  return tokenizer::ForEachText(
      task->batch, job.field, [&](std::string_view text, const std::string& place) -> Status {
        auto encoding = encoder.Encode(text, options);
        if (!encoding.ok()) return encoding.status().WithContext(place);
        task->ids.insert(task->ids.end(), encoding->ids.begin(), encoding->ids.end());
        if (job.separator) task->ids.push_back(*job.separator);
        ++task->texts;
        return OkStatus();
      });
}

// Threads that cut batches; the results come in the order in which they were given.
class Cutters {
 public:
  Cutters(const tokenizer::Tokenizer& tokenizer, const TokenizeJob& job) : job_(job) {
    for (int i = 0; i < job.threads; ++i) {
      threads_.emplace_back([this, &tokenizer] { Run(tokenizer); });
    }
  }

  ~Cutters() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
      waiting_.clear();
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::size_t in_flight() const { return tasks_.size(); }
  std::size_t bytes_in_flight() const { return bytes_in_flight_; }

  void Give(tokenizer::DocumentBatch batch) {
    auto task = std::make_shared<Task>();
    bytes_in_flight_ += batch.bytes.size();
    task->batch = std::move(batch);
    tasks_.push_back(task);
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(task));
    changed_.notify_all();
  }

  // Waits for the oldest one. Requires one in flight.
  std::shared_ptr<Task> Take() {
    std::shared_ptr<Task> task = tasks_.front();
    tasks_.pop_front();
    bytes_in_flight_ -= task->batch.bytes.size();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return task->done; });
    return task;
  }

 private:
  void Run(const tokenizer::Tokenizer& tokenizer) {
    tokenizer::Encoder encoder(tokenizer);
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopped_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const std::shared_ptr<Task> task = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      try {
        task->status = Cut(encoder, job_, task.get());
      } catch (const std::exception& error) {  // no memory, for one
        task->status = ResourceExhaustedError(error.what());
      }
      lock.lock();
      task->done = true;
      changed_.notify_all();
    }
  }

  const TokenizeJob& job_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> waiting_;  // guarded by mutex_
  bool stopped_ = false;                       // guarded by mutex_
  std::deque<std::shared_ptr<Task>> tasks_;    // of the giving thread
  std::size_t bytes_in_flight_ = 0;            // of the giving thread, too
  std::vector<std::thread> threads_;
};

}  // namespace

StatusOr<TokenizeCounts> TokenizeFiles(const tokenizer::Tokenizer& tokenizer,
                                       const TokenizeJob& job,
                                       const std::function<void(const TokenizeCounts&)>& progress) {
  DS_ASSIGN_OR_RETURN(auto reader, tokenizer::DocumentReader::Open(job.files, job.data_field));
  DS_ASSIGN_OR_RETURN(TokenFile file, TokenFile::Create(job.out, job.id_bytes));
  TokenizeCounts counts{.total_bytes = reader.total_bytes(), .notices = reader.notices()};
  Cutters cutters(tokenizer, job);
  const auto most_in_flight = static_cast<std::size_t>(2 * job.threads);
  bool more = true;
  while (more || cutters.in_flight() > 0) {
    if (more && cutters.in_flight() < most_in_flight &&
        cutters.bytes_in_flight() < kMostBytesInFlight) {
      DS_ASSIGN_OR_RETURN(std::optional<tokenizer::DocumentBatch> batch, reader.Next());
      more = batch.has_value();
      if (more) cutters.Give(*std::move(batch));
      continue;
    }
    const std::shared_ptr<Task> task = cutters.Take();
    DS_RETURN_IF_ERROR(task->status);
    DS_RETURN_IF_ERROR(file.Append(task->ids));
    counts.texts += task->texts;
    counts.tokens = file.count();
    counts.bytes = task->batch.done_bytes;
    progress(counts);
  }
  if (counts.tokens == 0) return InvalidArgumentError("the files hold no text");
  DS_RETURN_IF_ERROR(file.Commit());
  return counts;
}

}  // namespace ds::cli
