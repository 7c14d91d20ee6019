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
#include <variant>

#include "runtime/base/files.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/tokenizer/corpus/documents.h"
#include "runtime/tokenizer/corpus/row.h"
#include "runtime/tokenizer/corpus/written_chat.h"

namespace ds::cli {
namespace {

// The limit of unprocessed text. Tokenizing keeps several copies of a text in memory.
constexpr std::size_t kMostBytesInFlight = std::size_t{256} << 20;

// TokenFile is a file of token ids, little-endian uint16 or uint32, that appears only when
// complete. Before Commit it has a temporary name in the same folder, which the destructor removes.
class TokenFile {
 public:
  // `id_bytes` is 2 or 4.
  static StatusOr<TokenFile> Create(const std::filesystem::path& path, int id_bytes);
  TokenFile(TokenFile&& other) noexcept;
  TokenFile& operator=(TokenFile&&) = delete;
  ~TokenFile();

  // Requires ids that fit into id_bytes.
  Status Append(std::span<const std::uint32_t> ids);
  // Renames the file to its final path, replacing an existing file.
  Status Commit();

  std::uint64_t count() const { return count_; }

 private:
  TokenFile(std::filesystem::path path, std::filesystem::path temporary, UniqueFd file,
            int id_bytes);

  std::filesystem::path path_, temporary_;  // temporary_ is empty without such a file
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
                                  " does not fit in 16 bits: give --token_dtype uint32");
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
  TokenizeCounts counts;  // of this batch
  Status status;
  bool done = false;
};

struct WrittenText {
  std::string text;
  bool special_tokens = false;  // adds the tokenizer's own special tokens
};

// Returns the text of a row in the form that training uses; nothing for a skipped row.
StatusOr<std::optional<WrittenText>> WriteText(const tokenizer::DataRow& row,
                                               const tokenizer::TokenizerFolder& folder,
                                               TokenizeCounts* counts) {
  if (const auto* text = std::get_if<tokenizer::TextRow>(&row)) {
    return std::optional(WrittenText{text->text, true});
  }
  if (std::holds_alternative<tokenizer::RejectedRow>(row)) {
    ++counts->rejected;
    return std::optional<WrittenText>();
  }
  ++counts->partly_in_loss;
  if (const auto* each = std::get_if<tokenizer::CompletionRow>(&row)) {
    return std::optional(WrittenText{each->prompt + each->completion, true});
  }
  DS_ASSIGN_OR_RETURN(tokenizer::WrittenChat chat,
                      tokenizer::WriteChat(std::get<tokenizer::ChatRow>(row), folder));
  return std::optional(WrittenText{std::move(chat.full.text), false});
}

// Read-only data of the threads.
struct Shared {
  const tokenizer::TokenizerFolder& folder;
  const TokenizeJob& job;
};

Status TokenizeText(const Shared& shared, const WrittenText& written, tokenizer::Encoder* encoder,
                    Task* task) {
  const tokenizer::EncodeOptions options{
      .special_tokens = written.special_tokens && shared.job.special_tokens, .truncate = false};
  DS_ASSIGN_OR_RETURN(const tokenizer::Encoding encoding, encoder->Encode(written.text, options));
  task->ids.insert(task->ids.end(), encoding.ids.begin(), encoding.ids.end());
  if (shared.job.separator) task->ids.push_back(*shared.job.separator);
  ++task->counts.texts;
  return OkStatus();
}

Status TokenizeRow(const Shared& shared, std::string_view line, tokenizer::Encoder* encoder,
                   Task* task) {
  const bool has_template = shared.folder.chat_template.has_value();
  DS_ASSIGN_OR_RETURN(const tokenizer::DataRow row,
                      tokenizer::ReadRow(line, shared.job.rows, has_template));
  DS_ASSIGN_OR_RETURN(const auto written, WriteText(row, shared.folder, &task->counts));
  return written ? TokenizeText(shared, *written, encoder, task) : OkStatus();
}

Status Tokenize(const Shared& shared, tokenizer::Encoder* encoder, Task* task) {
  return tokenizer::ForEachDocument(
      task->batch, [&](std::string_view text, const std::string& location) {
        const Status tokenized =
            task->batch.lines ? TokenizeRow(shared, text, encoder, task)
                              : TokenizeText(shared, {std::string(text), true}, encoder, task);
        return tokenized.ok() ? tokenized : tokenized.WithContext(location);
      });
}

// Threads that tokenize batches. Results are returned in the order of the batches.
class Cutters {
 public:
  Cutters(const tokenizer::TokenizerFolder& folder, const TokenizeJob& job) : shared_{folder, job} {
    for (int i = 0; i < job.threads; ++i) {
      threads_.emplace_back([this] { Run(); });
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

  // Waits for the oldest batch. Requires at least one in flight.
  std::shared_ptr<Task> Take() {
    std::shared_ptr<Task> task = tasks_.front();
    tasks_.pop_front();
    bytes_in_flight_ -= task->batch.bytes.size();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return task->done; });
    return task;
  }

 private:
  void Run() {
    tokenizer::Encoder encoder(shared_.folder.tokenizer);
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopped_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const std::shared_ptr<Task> task = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      try {
        task->status = Tokenize(shared_, &encoder, task.get());
      } catch (const std::exception& error) {  // out of memory, for example
        task->status = ResourceExhaustedError(error.what());
      }
      lock.lock();
      task->done = true;
      changed_.notify_all();
    }
  }

  const Shared shared_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> waiting_;  // guarded by mutex_
  bool stopped_ = false;                       // guarded by mutex_
  std::deque<std::shared_ptr<Task>> tasks_;    // used by the thread that calls Give
  std::size_t bytes_in_flight_ = 0;            // used by that thread, too
  std::vector<std::thread> threads_;
};

}  // namespace

StatusOr<TokenizeCounts> TokenizeFiles(const tokenizer::TokenizerFolder& folder,
                                       const TokenizeJob& job,
                                       const std::function<void(const TokenizeCounts&)>& progress) {
  DS_ASSIGN_OR_RETURN(auto reader, tokenizer::DocumentReader::Open(job.files, job.data_field));
  DS_ASSIGN_OR_RETURN(TokenFile file, TokenFile::Create(job.out, job.id_bytes));
  TokenizeCounts counts{.total_bytes = reader.total_bytes(), .notices = reader.notices()};
  Cutters cutters(folder, job);
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
    counts.texts += task->counts.texts;
    counts.partly_in_loss += task->counts.partly_in_loss;
    counts.rejected += task->counts.rejected;
    counts.tokens = file.count();
    counts.bytes = task->batch.done_bytes;
    progress(counts);
  }
  if (counts.tokens == 0) return InvalidArgumentError("the files hold no text");
  DS_RETURN_IF_ERROR(file.Commit());
  return counts;
}

}  // namespace ds::cli
