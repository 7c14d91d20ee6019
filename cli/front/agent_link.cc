#include "cli/front/agent_link.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

namespace ds::cli {
namespace {

v1::FromFront MakeInput(std::uint64_t serial, const InputPiece& piece) {
  v1::FromFront message;
  message.mutable_input()->set_serial(serial);
  message.mutable_input()->set_offset(piece.offset);
  message.mutable_input()->set_data(piece.data);
  message.mutable_input()->set_end(piece.end);
  return message;
}

}  // namespace

void AgentLink::Open(UniqueFd connection) {
  const std::lock_guard lock(send_mutex_);
  connection_ = std::move(connection);
  received_ = {};
  const int flags = ::fcntl(connection_.get(), F_GETFL);
  ::fcntl(connection_.get(), F_SETFL, flags & ~O_NONBLOCK);
}

// A message is small, except input, which has a thread of its own and waits for each reply. So the
// socket is full only if the agent has not read for a long time.
void AgentLink::Send(const v1::FromFront& message) {
  const Frame frame = MakeFrame(message);
  const int flags = message.has_input() ? MSG_NOSIGNAL : MSG_NOSIGNAL | MSG_DONTWAIT;
  const std::lock_guard lock(send_mutex_);
  for (std::string_view rest = *frame; !rest.empty();) {
    const ssize_t sent = ::send(connection_.get(), rest.data(), rest.size(), flags);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return;
    rest.remove_prefix(static_cast<std::size_t>(sent));
  }
}

void AgentLink::Close() { ::shutdown(connection_.get(), SHUT_RDWR); }

void AgentLink::SetReceiveTimeout(std::chrono::seconds timeout) {
  timeval limit{};
  limit.tv_sec = timeout.count();
  ::setsockopt(connection_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

void AgentLink::SendHello(v1::FrontHello hello) {
  hello.set_protocol(v1::AGENT_PROTOCOL_CURRENT);
  v1::FromFront message;
  *message.mutable_hello() = std::move(hello);
  Send(message);
}

void AgentLink::SendSignal(int signal) {
  v1::FromFront message;
  message.mutable_signal()->set_number(signal);
  Send(message);
}

std::optional<v1::FromAgent> AgentLink::Receive() {
  v1::FromAgent message;
  for (;;) {
    const StatusOr<bool> complete = received_.Next(&message);
    if (!complete.ok()) return std::nullopt;
    if (*complete) return message;
    std::array<char, std::size_t{64} << 10> buffer;
    const ssize_t size = ::recv(connection_.get(), buffer.data(), buffer.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    timed_out_ = size < 0 && errno == EAGAIN;
    if (size <= 0) return std::nullopt;
    received_.Add({buffer.data(), static_cast<std::size_t>(size)});
  }
}

bool AgentLink::BeginInput(std::uint64_t serial) {
  std::optional<InputPiece> unanswered;
  {
    const std::lock_guard lock(mutex_);
    serial_ = serial;
    if (!std::exchange(input_runs_, true)) return true;
    unanswered = unanswered_;
  }
  if (unanswered.has_value()) Send(MakeInput(serial, *unanswered));
  return false;
}

StatusOr<std::uint64_t> AgentLink::SendInput(const InputPiece& piece) {
  std::unique_lock lock(mutex_);
  if (!input_runs_) return UnavailableError("the input has ended");
  reply_.reset();
  unanswered_ = piece;
  const std::uint64_t serial = serial_;
  lock.unlock();
  Send(MakeInput(serial, piece));
  lock.lock();
  changed_.wait(lock, [&] { return reply_.has_value() || !input_runs_; });
  unanswered_.reset();
  if (!reply_.has_value()) return UnavailableError("the input has ended");
  if (reply_->code() == 0) return reply_->accepted();
  return Status(static_cast<StatusCode>(reply_->code()), reply_->message());
}

void AgentLink::OnInputReply(const v1::InputReply& reply) {
  const std::lock_guard lock(mutex_);
  if (reply.serial() == serial_) reply_ = reply;
  changed_.notify_all();
}

void AgentLink::EndInput() {
  const std::lock_guard lock(mutex_);
  input_runs_ = false;
  changed_.notify_all();
}

}  // namespace ds::cli
