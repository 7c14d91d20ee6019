#include "runtime/base/rank_link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "runtime/base/parse_number.h"

namespace ds {
namespace {

constexpr std::string_view kVersion = "dsrun1";

constexpr std::array<std::pair<RankMessageKind, std::string_view>, 11> kKinds = {{
    {RankMessageKind::kHello, "hello"},
    {RankMessageKind::kPhase, "phase"},
    {RankMessageKind::kBeacon, "beacon"},
    {RankMessageKind::kStep, "step"},
    {RankMessageKind::kNotice, "notice"},
    {RankMessageKind::kCheckpoint, "checkpoint"},
    {RankMessageKind::kError, "error"},
    {RankMessageKind::kEnd, "end"},
    {RankMessageKind::kPut, "put"},
    {RankMessageKind::kGet, "get"},
    {RankMessageKind::kValue, "value"},
}};

}  // namespace

std::string_view NameRankMessageKind(RankMessageKind kind) {
  for (const auto& [known, name] : kKinds) {
    if (known == kind) return name;
  }
  return "unknown";
}

std::optional<RankMessageKind> FindRankMessageKind(std::string_view name) {
  for (const auto& [kind, known] : kKinds) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

StatusOr<std::string> EncodeRankMessage(const RankMessage& message) {
  if (message.body.find('\n') != std::string::npos) {
    return InvalidArgumentError("rank link: a message body holds a raw newline");
  }
  std::string line(kVersion);
  line.append(" ").append(NameRankMessageKind(message.kind)).append(" ");
  line.append(message.body).append("\n");
  if (line.size() > kMaxLineBytes) {
    return InvalidArgumentError("rank link: a message of " + std::to_string(line.size()) +
                                " bytes is longer than " + std::to_string(kMaxLineBytes));
  }
  return line;
}

StatusOr<RankMessage> DecodeRankMessage(std::string_view line) {
  const std::size_t version_end = line.find(' ');
  if (version_end == std::string_view::npos || line.substr(0, version_end) != kVersion) {
    return InvalidArgumentError("rank link: a line does not start with '" + std::string(kVersion) +
                                " '; rank and daemon are of different versions");
  }
  line.remove_prefix(version_end + 1);
  const std::size_t kind_end = line.find(' ');
  if (kind_end == std::string_view::npos) {
    return InvalidArgumentError("rank link: a message has no body");
  }
  const auto kind = FindRankMessageKind(line.substr(0, kind_end));
  if (!kind) {
    return InvalidArgumentError("rank link: unknown kind '" +
                                std::string(line.substr(0, kind_end)) + "'");
  }
  return RankMessage{*kind, std::string(line.substr(kind_end + 1))};
}

void RankMessageReader::Feed(std::string_view bytes) {
  buffer_.erase(0, std::exchange(begin_, 0));  // erase once per batch of received messages
  buffer_.append(bytes);
}

StatusOr<std::optional<RankMessage>> RankMessageReader::Next() {
  const std::string_view rest = std::string_view(buffer_).substr(begin_);
  const std::size_t newline = rest.find('\n');
  if (newline == std::string_view::npos ? rest.size() >= kMaxLineBytes : newline >= kMaxLineBytes) {
    return InvalidArgumentError("rank link: a line is longer than " +
                                std::to_string(kMaxLineBytes) + " bytes");
  }
  if (newline == std::string_view::npos) return std::optional<RankMessage>();
  begin_ += newline + 1;
  DS_ASSIGN_OR_RETURN(RankMessage message, DecodeRankMessage(rest.substr(0, newline)));
  return std::optional<RankMessage>(std::move(message));
}

StatusOr<std::unique_ptr<RankLink>> RankLink::FromEnvironment() {
  const char* text = std::getenv(kRankLinkVariable);
  if (text == nullptr) return std::unique_ptr<RankLink>();
  const int fd = ParseNumber<int>(text).value_or(-1);
  if (fd < 0) {
    return InvalidArgumentError(std::string(kRankLinkVariable) + "='" + text +
                                "' is not a descriptor number");
  }
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return ErrnoError(errno, kRankLinkVariable);
  ::unsetenv(kRankLinkVariable);
  return std::make_unique<RankLink>(UniqueFd(fd));
}

Status RankLink::Send(const RankMessage& message) {
  DS_ASSIGN_OR_RETURN(const std::string line, EncodeRankMessage(message));
  const std::lock_guard lock(send_mutex_);
  std::string_view rest = line;
  while (!rest.empty()) {
    // MSG_NOSIGNAL turns a vanished daemon into an error instead of a SIGPIPE.
    const ssize_t sent = ::send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return ErrnoError(errno, "rank link");
    rest.remove_prefix(static_cast<std::size_t>(sent));
  }
  return OkStatus();
}

StatusOr<RankMessage> RankLink::Receive(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    DS_ASSIGN_OR_RETURN(std::optional<RankMessage> message, reader_.Next());
    if (message) return *std::move(message);
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return DeadlineExceededError("rank link: the daemon has not answered");
    pollfd readable{fd_.get(), POLLIN, 0};
    if (::poll(&readable, 1, static_cast<int>(left.count())) <= 0) continue;
    std::array<char, 4096> buffer;
    const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return ErrnoError(errno, "rank link");
    if (got == 0) return UnavailableError("rank link: the daemon has closed it");
    reader_.Feed(std::string_view(buffer.data(), static_cast<std::size_t>(got)));
  }
}

}  // namespace ds
