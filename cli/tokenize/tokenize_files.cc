#include "cli/tokenize/tokenize_files.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "cli/tokenize/documents.h"
#include "cli/tokenize/token_file.h"

namespace ds::cli {
namespace {

struct Task {
  DocumentBatch batch;
  std::vector<std::uint32_t> ids;
  std::uint64_t texts = 0;
  Status status;
  bool done = false;
};

Status Cut(tokenizer::Encoder& encoder, const TokenizeJob& job, Task* task) {
  const tokenizer::EncodeOptions options{.special_tokens = job.special_tokens, .truncate = false};
  return ForEachText(
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

  void Give(DocumentBatch batch) {
    auto task = std::make_shared<Task>();
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
  std::vector<std::thread> threads_;
};

}  // namespace

StatusOr<TokenizeCounts> TokenizeFiles(const tokenizer::Tokenizer& tokenizer,
                                       const TokenizeJob& job,
                                       const std::function<void(const TokenizeCounts&)>& progress) {
  DS_ASSIGN_OR_RETURN(DocumentReader reader, DocumentReader::Open(job.files));
  DS_ASSIGN_OR_RETURN(TokenFile file, TokenFile::Create(job.out, job.id_bytes));
  TokenizeCounts counts{.total_bytes = reader.total_bytes()};
  Cutters cutters(tokenizer, job);
  const auto most_in_flight = static_cast<std::size_t>(2 * job.threads);
  bool more = true;
  while (more || cutters.in_flight() > 0) {
    if (more && cutters.in_flight() < most_in_flight) {
      DS_ASSIGN_OR_RETURN(std::optional<DocumentBatch> batch, reader.Next());
      more = batch.has_value();
      if (more) cutters.Give(*std::move(batch));
      continue;
    }
    const std::shared_ptr<Task> task = cutters.Take();
    DS_RETURN_IF_ERROR(task->status);
    DS_RETURN_IF_ERROR(file.Append(task->ids));
    counts.texts += task->texts;
    counts.tokens = file.count();
    counts.bytes += task->batch.bytes.size();
    progress(counts);
  }
  if (counts.tokens == 0) return InvalidArgumentError("the files hold no text");
  DS_RETURN_IF_ERROR(file.Commit());
  return counts;
}

}  // namespace ds::cli
