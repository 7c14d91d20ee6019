#include "cli/host/event_stream.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#include <algorithm>
#include <utility>

#include "runtime/base/clock.h"

namespace ds::cli {
namespace {

// A stream is renewed when this has passed, so that one which died silently does not live for ever.
constexpr std::chrono::hours kWatchDeadline{1};

// Half of what the daemon sends ahead would do; a quarter keeps it from ever waiting for us.
constexpr std::size_t kAcknowledgeEveryBytes = 256 * 1024;

// Between two attempts to go on watching over a network.
constexpr std::chrono::milliseconds kFirstRetryAfter{50};
constexpr std::chrono::milliseconds kLongestRetryAfter{1000};

std::chrono::system_clock::time_point In(std::chrono::milliseconds pause) {
  return std::chrono::system_clock::now() + pause;
}

// The system says so, and gRPC after it, of a new connection to where nobody listens.
bool IsRefused(const std::string& message) {
  return message.find("Connection refused") != std::string::npos ||
         message.find("No such file or directory") != std::string::npos;  // of a tunnel
}

// gRPC orders what a thread did before it began an operation with that operation's reaction, by
// atomics of archives that ThreadSanitizer does not see. These two tell it, and nothing more than
// that: what two reactions do at once is still reported.
void HandOver([[maybe_unused]] void* reactor) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(reactor);
#endif
}

void TakeOver([[maybe_unused]] void* reactor) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(reactor);
#endif
}

}  // namespace

// One Watch. The hold keeps it until nothing is read any more, for reading goes on from outside of
// its reactions.
class EventStream::Connection : public grpc::ClientBidiReactor<v1::WatchRequest, v1::EventBatch> {
 public:
  Connection(std::shared_ptr<EventStream> stream, v1::WatchRequest request)
      : stream_(std::move(stream)), request_(std::move(request)) {
    context_.set_deadline(std::chrono::system_clock::now() + kWatchDeadline);
  }

  grpc::ClientContext* context() { return &context_; }

  void Start() {
    stream_->way_.stub->async()->Watch(&context_, this);
    AddHold();
    HandOver(this);
    StartWrite(&request_);  // a failure shows in the reading
    Read();
    StartCall();
  }

  void OnReadDone(bool ok) override {
    TakeOver(this);
    if (!ok) {
      HandOver(this);
      return RemoveHold();
    }
    *stream_->way_.last_event = Clock::System().Now();
    // Reading goes on when the last one who holds the batch lets go of it.
    const std::shared_ptr<const v1::EventBatch> batch(batch_.release(),
                                                      [this](const v1::EventBatch* taken) {
                                                        OnTaken(*taken);
                                                        delete taken;
                                                      });
    stream_->callbacks_.on_events(batch);
  }

  void OnWriteDone(bool /*ok*/) override {
    TakeOver(this);
    const std::lock_guard lock(mutex_);
    is_writing_ = false;
    Acknowledge();
  }

  void OnDone(const grpc::Status& status) override {
    TakeOver(this);
    const std::shared_ptr<EventStream> stream = std::move(stream_);
    stream->Forget();  // before its context goes, which Cancel uses
    delete this;
    stream->OnDisconnected(
        Status(static_cast<StatusCode>(status.error_code()), status.error_message()));
  }

 private:
  void Read() {
    batch_ = std::make_unique<v1::EventBatch>();
    v1::EventBatch* const batch = batch_.get();
    HandOver(this);
    StartRead(batch);
  }

  void OnTaken(const v1::EventBatch& batch) {
    stream_->Take(batch);
    {
      const std::lock_guard lock(mutex_);
      unacknowledged_ += batch.ByteSizeLong();
      Acknowledge();
    }
    Read();
  }

  void Acknowledge() {
    if (is_writing_ || unacknowledged_ < kAcknowledgeEveryBytes) return;
    const std::lock_guard lock(stream_->mutex_);
    request_.set_after_sequence(stream_->sequence_);
    unacknowledged_ = 0;
    is_writing_ = true;
    HandOver(this);
    StartWrite(&request_);
  }

  std::shared_ptr<EventStream> stream_;
  grpc::ClientContext context_;
  std::unique_ptr<v1::EventBatch> batch_;  // being read
  std::mutex mutex_;                       // guards all below
  v1::WatchRequest request_;
  bool is_writing_ = true;  // the first request is
  std::size_t unacknowledged_ = 0;
};

EventStream::EventStream(const Way& way, const WatchOptions& options,
                         HostDaemon::WatchCallbacks callbacks)
    : way_(way),
      options_(options),
      callbacks_(std::move(callbacks)),
      sequence_(options.after_sequence),
      pause_(kFirstRetryAfter) {}

std::shared_ptr<EventStream> EventStream::Begin(const Way& way, const WatchOptions& options,
                                                HostDaemon::WatchCallbacks callbacks) {
  auto stream = std::make_shared<EventStream>(way, options, std::move(callbacks));
  stream->Connect();
  return stream;
}

void EventStream::Connect() {
  v1::WatchRequest request;
  request.set_job_id(options_.job_id);
  request.set_generation(options_.generation);
  Connection* connection = nullptr;
  std::unique_ptr<grpc::Alarm> woken_by;  // it knows this stream, and goes
  {
    const std::lock_guard lock(mutex_);
    woken_by = std::move(alarm_);
    request.set_after_sequence(sequence_);
    request.set_again(options_.again);
    connected_at_ = sequence_;
    connection = new Connection(shared_from_this(), std::move(request));  // goes in OnDone
    context_ = connection->context();
    if (cancelled_) context_->TryCancel();
  }
  connection->Start();
}

void EventStream::Cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (context_ != nullptr) context_->TryCancel();
  if (alarm_ != nullptr) alarm_->Cancel();
}

void EventStream::Take(const v1::EventBatch& batch) {
  const std::lock_guard lock(mutex_);
  for (const v1::Event& event : batch.events()) {
    sequence_ = event.sequence();
    generation_ended_ = generation_ended_ || event.has_generation_ended();
  }
  // The daemon has nothing more to say.
  if (generation_ended_ && context_ != nullptr) context_->TryCancel();
}

void EventStream::Forget() {
  const std::lock_guard lock(mutex_);
  context_ = nullptr;
}

void EventStream::OnDisconnected(const Status& status) {
  std::unique_lock lock(mutex_);
  if (generation_ended_ || cancelled_) {
    lock.unlock();
    return End(OkStatus());
  }
  if (status.code() == StatusCode::kDeadlineExceeded) {
    lock.unlock();
    return Connect();
  }
  const bool comes_back = way_.over_network && status.code() == StatusCode::kUnavailable;
  const bool refused = !broken_by_.empty() && IsRefused(status.message());
  if (!comes_back || refused) {
    const std::string before = broken_by_.empty() ? "" : broken_by_ + "; then: ";
    lock.unlock();
    return End(status.ok() ? UnavailableError("the daemon ended the event stream before the job")
                           : Status(status.code(), before + status.message()));
  }
  if (broken_by_.empty() || sequence_ != connected_at_) broken_by_ = status.message();
  if (sequence_ != connected_at_) pause_ = kFirstRetryAfter;
  const std::chrono::milliseconds pause =
      std::exchange(pause_, std::min(pause_ * 2, kLongestRetryAfter));
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(In(pause), [self = shared_from_this()](bool /*in_time*/) { self->Connect(); });
}

void EventStream::End(const Status& status) {
  bool cancelled = false;
  {
    const std::lock_guard lock(mutex_);
    cancelled = cancelled_ && !generation_ended_;
  }
  callbacks_.on_end(cancelled ? CancelledError("watching was cancelled") : status);
}

}  // namespace ds::cli
