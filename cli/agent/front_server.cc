#include "cli/agent/front_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <utility>

#include "cli/host/deadlines.h"
#include "runtime/base/byte_size.h"

namespace ds::cli {
namespace {

constexpr std::size_t kQueueLimit = std::size_t{64} << 20;
constexpr std::size_t kReadBytes = std::size_t{64} << 10;

std::size_t CountLines(std::string_view text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

FrontServer::FrontServer(v1::AgentHello hello, Handlers handlers)
    : hello_([&] {
        v1::FromAgent message;
        *message.mutable_hello() = std::move(hello);
        return MakeFrame(message);
      }()),
      handlers_(std::move(handlers)) {}

FrontServer::~FrontServer() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  Wake();
  thread_.join();
}

Status FrontServer::Start(UniqueFd first, AgentSocket socket, bool detached) {
  socket_ = std::move(socket);
  detached_ = detached;
  wake_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return ErrnoError(errno, "eventfd");
  if (first.valid()) {
    ::fcntl(first.get(), F_SETFL, O_NONBLOCK);
    fronts_.push_back({.connection = std::move(first), .first = true});
    Queue(&fronts_.back(), hello_);
  }
  thread_ = std::thread([this] { Loop(); });
  return OkStatus();
}

void FrontServer::Wake() const {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof(one)));
}

void FrontServer::Loop() {
  std::vector<pollfd> watched;
  std::vector<std::list<Front>::iterator> served;
  for (;;) {
    watched = {{wake_.get(), POLLIN, 0}, {socket_.fd(), POLLIN, 0}};
    served.clear();
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
      for (auto front = fronts_.begin(); front != fronts_.end(); ++front) {
        const short events = front->queue.empty() ? POLLIN : POLLIN | POLLOUT;
        watched.push_back({front->connection.get(), events, 0});
        served.push_back(front);
      }
    }
    if (::poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) return;
    std::uint64_t wakes = 0;
    if (watched[0].revents != 0) static_cast<void>(!::read(wake_.get(), &wakes, sizeof(wakes)));
    if (watched[1].revents != 0) Accept();
    for (std::size_t i = 0; i < served.size(); ++i) {
      if (!Serve(&*served[i], watched[i + 2].revents)) Forget(served[i]);
    }
  }
}

void FrontServer::Accept() {
  UniqueFd connection(::accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection.valid()) return;
  const std::lock_guard lock(mutex_);
  fronts_.push_back({.connection = std::move(connection)});
  Queue(&fronts_.back(), hello_);
  if (end_ != nullptr) Queue(&fronts_.back(), end_);
}

bool FrontServer::Serve(Front* front, short events) {
  {
    const std::lock_guard lock(mutex_);
    if ((events & POLLOUT) != 0) Send(front);
    if (front->broken) return false;
  }
  if ((events & (POLLIN | POLLHUP | POLLERR)) == 0) return true;
  std::array<char, kReadBytes> buffer;
  const ssize_t size = ::recv(front->connection.get(), buffer.data(), buffer.size(), 0);
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  if (size == 0) return false;
  front->received.Add({buffer.data(), static_cast<std::size_t>(size)});
  for (v1::FromFront message;;) {
    const StatusOr<bool> complete = front->received.Next(&message);
    if (!complete.ok()) return false;
    if (!*complete) return true;
    Handle(front, message);
  }
}

void FrontServer::Handle(Front* front, const v1::FromFront& message) {
  switch (message.what_case()) {
    case v1::FromFront::kHello: {
      const std::lock_guard lock(mutex_);
      front->shows_job = message.hello().shows_job();
      front->lossless = message.hello().lossless();
      break;
    }
    case v1::FromFront::kSignal:
      handlers_.on_signal(message.signal().number());
      break;
    case v1::FromFront::kDetach:
      Detach();
      break;
    case v1::FromFront::kInput:
      if (front->first) handlers_.on_input(message.input());
      break;
    case v1::FromFront::kStatus: {
      v1::FromAgent reply;
      reply.mutable_status()->set_json(handlers_.describe());
      const std::lock_guard lock(mutex_);
      Queue(front, MakeFrame(reply));
      break;
    }
    case v1::FromFront::WHAT_NOT_SET:  // of a later version
      break;
  }
}

void FrontServer::Detach() {
  v1::FromAgent message;
  message.mutable_detached();
  {
    const std::lock_guard lock(mutex_);
    detached_ = true;
  }
  if (handlers_.on_detached) handlers_.on_detached();
  Publish(message);
}

void FrontServer::Forget(std::list<Front>::iterator front) {
  bool first = false;
  bool ends_job = false;
  {
    const std::lock_guard lock(mutex_);
    first = front->first;
    ends_job = first && !detached_ && !ended_;
    fronts_.erase(front);
    changed_.notify_all();
  }
  if (first) handlers_.on_first_gone(ends_job);
}

void FrontServer::Publish(const v1::FromAgent& message) {
  const Frame frame = MakeFrame(message);
  const v1::Event* event = message.has_event() ? &message.event().event() : nullptr;
  const bool droppable = event != nullptr && event->has_rank_output();
  std::unique_lock lock(mutex_);
  if (droppable) {
    const auto none_is_slow = [this] {
      const TimePoint now = std::chrono::steady_clock::now();
      return std::none_of(fronts_.begin(), fronts_.end(),
                          [&](const Front& front) { return IsSlow(front, now); });
    };
    while (!none_is_slow() && !closing_) changed_.wait_for(lock, deadlines::kStalledFront);
  }
  bool waits = false;
  for (Front& front : fronts_) {
    if (!front.shows_job && !front.first) continue;
    if (droppable && front.queued > kQueueLimit) {
      front.lost_lines += CountLines(event->rank_output().data());
      front.lost_bytes += event->rank_output().data().size();
      continue;
    }
    Queue(&front, frame);
    waits = waits || !front.queue.empty() || front.broken;
  }
  lock.unlock();
  if (waits) Wake();
}

void FrontServer::SendToFirst(const v1::FromAgent& message) {
  const Frame frame = MakeFrame(message);
  {
    const std::lock_guard lock(mutex_);
    for (Front& front : fronts_) {
      if (front.first) Queue(&front, frame);
    }
  }
  Wake();
}

void FrontServer::PublishEnd(const v1::JobEnded& ended) {
  v1::FromAgent message;
  *message.mutable_ended() = ended;
  const Frame frame = MakeFrame(message);
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    end_ = frame;
    for (Front& front : fronts_) Queue(&front, frame);
  }
  Wake();
}

void FrontServer::Close() {
  if (!thread_.joinable()) return;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return AllSent(); });
    closing_ = true;
  }
  Wake();
  thread_.join();
  fronts_.clear();
  socket_.Remove();
}

bool FrontServer::AllSent() const {
  return std::all_of(fronts_.begin(), fronts_.end(),
                     [](const Front& front) { return front.queue.empty(); });
}

bool FrontServer::IsSlow(const Front& front, TimePoint now) const {
  return front.lossless && !front.broken && front.queued > kQueueLimit &&
         now - front.progress < deadlines::kStalledFront;
}

void FrontServer::Queue(Front* front, const Frame& frame) {
  if (front->broken) return;
  if (front->queue.empty()) front->progress = std::chrono::steady_clock::now();
  front->queue.push_back(frame);
  front->queued += frame->size();
  Send(front);
}

// The socket never blocks: the rest is sent when it is writable again.
void FrontServer::Send(Front* front) {
  while (!front->queue.empty() && !front->broken) {
    const std::string_view rest = std::string_view(*front->queue.front()).substr(front->sent);
    const ssize_t sent = ::send(front->connection.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (sent < 0) {
      front->broken = true;
      front->queue.clear();
      changed_.notify_all();
      return;
    }
    front->progress = std::chrono::steady_clock::now();
    front->sent += static_cast<std::size_t>(sent);
    front->queued -= static_cast<std::size_t>(sent);
    if (front->sent < front->queue.front()->size()) continue;
    front->sent = 0;
    front->queue.pop_front();
    if (front->queue.empty()) ReportDropped(front);
  }
  changed_.notify_all();
}

void FrontServer::ReportDropped(Front* front) {
  const std::uint64_t lines = std::exchange(front->lost_lines, 0);
  const std::uint64_t bytes = std::exchange(front->lost_bytes, 0);
  if (bytes == 0) return;
  v1::FromAgent message;
  message.mutable_text()->set_kind(v1::JobText::WARNING);
  message.mutable_text()->set_text(std::to_string(lines) + (lines == 1 ? " line, " : " lines, ") +
                                   ByteSize(bytes) + (lines == 1 ? ", is" : ", are") +
                                   " not shown here because dsrun was blocked; the run directory "
                                   "has all");
  const Frame frame = MakeFrame(message);
  front->queue.push_back(frame);
  front->queued += frame->size();
}

}  // namespace ds::cli
