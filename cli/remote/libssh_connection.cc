#include "cli/remote/libssh_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/remote/poll_thread.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/freer.h"
#include "runtime/process/private_folder.h"
#include "runtime/process/unix_socket.h"

namespace ds::cli {
namespace {

constexpr char kRunningCommand[] = "running a command";
constexpr char kConnecting[] = "connecting to its dsrund";
constexpr std::size_t kMaxOutput = std::size_t{1} << 20;
constexpr std::size_t kLongestPiece = std::size_t{1} << 20;
constexpr int kSliceMillis = 100;  // longest wait for one stream while another may have data
constexpr std::size_t kTunnelPiece = 64 * 1024;

using Channel = std::unique_ptr<ssh_channel_struct, Freer<ssh_channel_free>>;

// Appends the available bytes of one stream. Returns false if the connection is broken.
bool ReadSome(ssh_channel channel, bool is_error, int timeout_millis, std::string* text) {
  std::array<char, 16384> buffer;
  const int got = ::ssh_channel_read_timeout(channel, buffer.data(), buffer.size(),
                                             is_error ? 1 : 0, timeout_millis);
  if (got == SSH_ERROR) return false;
  if (got > 0 && text->size() < kMaxOutput) text->append(buffer.data(), got);
  return true;
}

// SshTunnel leads to a daemon's port through the SSH connection that started the daemon. Hosts that
// only SSH can reach need it: behind a ProxyCommand, a ProxyJump or a firewall.
//
// A unix socket in a private folder accepts connections on this machine. Each one becomes a channel
// that the host's sshd connects to the daemon. Bytes are forwarded unchanged: TLS runs between
// dsrun and the daemon. When SSH breaks, the socket is closed and accepts no more connections. The
// poll thread owns the session, and no call blocks that thread.
class SshTunnel : public RemoteTunnel, private PollMember {
 public:
  // Fails with kPort if the host's sshd cannot reach the daemon or forbids forwarding.
  static HostResult<std::unique_ptr<RemoteTunnel>> Open(std::unique_ptr<SshSession> session,
                                                        const HostPort& daemon);
  ~SshTunnel() override;
  SshTunnel(const SshTunnel&) = delete;
  SshTunnel& operator=(const SshTunnel&) = delete;

  std::string target() const override { return "unix:" + socket_path(); }

 private:
  class Connection;

  SshTunnel(std::unique_ptr<SshSession> session, HostPort daemon);
  std::string socket_path() const { return (folder_.path() / "tunnel.sock").string(); }
  Status Listen();
  void AddWatched(std::vector<pollfd>* watched) override;
  bool OnReady(std::span<const pollfd> watched) override;
  void Accept();
  bool MoveAll();  // returns false if SSH is broken

  ssh_counter_struct handled_{};  // packets that libssh has handled; must outlive session_
  const std::unique_ptr<SshSession> session_;
  const HostPort daemon_;
  PrivateFolder folder_;
  UniqueFd listener_;
  ssh_event packets_ = nullptr;
  std::vector<std::unique_ptr<Connection>> connections_;  // used by the poll thread
  std::shared_ptr<PollThread> thread_;
};

// Requests a channel to the daemon; later calls query the request. Returns SSH_OK if the channel is
// open, SSH_AGAIN while a non-blocking session waits for the host's sshd, and another value if the
// request failed.
int OpenChannel(ssh_channel channel, const HostPort& daemon) {
  if (channel == nullptr) return SSH_ERROR;
  // sshd only logs the origin of the connection, so any address of this machine will do.
  return ::ssh_channel_open_forward(channel, daemon.host.c_str(), daemon.port, "127.0.0.1", 0);
}

// Opens a channel to the daemon as a test, and waits for the result.
bool Reaches(const SshSession& session, const HostPort& daemon) {
  const Channel probe(::ssh_channel_new(session.handle()));
  return OpenChannel(probe.get(), daemon) == SSH_OK;
}

// One connection of gRPC and its channel. No call blocks: each direction buffers at most one piece
// that its destination has not accepted yet.
class SshTunnel::Connection {
 public:
  Connection(UniqueFd socket, Channel channel, const HostPort* daemon)
      : socket_(std::move(socket)), channel_(std::move(channel)), daemon_(*daemon) {}

  pollfd Watched() const {
    if (!is_open_) return {-1, 0, 0};
    const bool has_room = to_channel_.empty() && !socket_ended_ && Window() > 0;
    const int events = (has_room ? POLLIN : 0) | (to_socket_.empty() ? 0 : POLLOUT);
    return {socket_.get(), static_cast<short>(events), 0};
  }
  // Returns false if the channel cannot be opened: the daemon is gone, and the connection ends as a
  // direct one would.
  bool Open() {
    if (is_open_) return true;
    const int opened = OpenChannel(channel_.get(), daemon_);
    is_open_ = opened == SSH_OK;
    return is_open_ || opened == SSH_AGAIN;
  }
  // Forwards the available bytes. Returns false if the connection has ended.
  bool Move() {
    if (!is_open_) return true;
    return MoveToSocket() && MoveToChannel() && !(socket_ended_ && channel_ended_);
  }

 private:
  std::size_t Window() const { return ::ssh_channel_window_size(channel_.get()); }
  bool MoveToSocket();
  bool MoveToChannel();

  UniqueFd socket_;
  Channel channel_;
  const HostPort& daemon_;
  bool is_open_ = false;
  std::string to_socket_, to_channel_;
  bool socket_ended_ = false, channel_ended_ = false;  // has sent end-of-file
};

bool SshTunnel::Connection::MoveToSocket() {
  std::array<char, kTunnelPiece> piece;
  while (true) {
    if (!to_socket_.empty()) {
      const ssize_t sent =
          ::send(socket_.get(), to_socket_.data(), to_socket_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0) return errno == EAGAIN || errno == EINTR;
      to_socket_.erase(0, static_cast<std::size_t>(sent));
      if (!to_socket_.empty()) return true;
    }
    if (channel_ended_) return true;
    const int got =
        ::ssh_channel_read_nonblocking(channel_.get(), piece.data(), piece.size(), /*stderr=*/0);
    if (got > 0) {
      to_socket_.assign(piece.data(), static_cast<std::size_t>(got));
    } else if (::ssh_channel_is_eof(channel_.get()) != 0) {
      channel_ended_ = true;
      ::shutdown(socket_.get(), SHUT_WR);
    } else {
      return got != SSH_ERROR;
    }
  }
}

bool SshTunnel::Connection::MoveToChannel() {
  std::array<char, kTunnelPiece> piece;
  while (!socket_ended_) {
    if (to_channel_.empty()) {
      const std::size_t capacity = std::min(Window(), piece.size());
      if (capacity == 0) return true;
      const ssize_t got = ::recv(socket_.get(), piece.data(), capacity, MSG_DONTWAIT);
      if (got < 0) return errno == EAGAIN || errno == EINTR;
      socket_ended_ = got == 0;
      if (socket_ended_) return ::ssh_channel_send_eof(channel_.get()) != SSH_ERROR;
      to_channel_.assign(piece.data(), static_cast<std::size_t>(got));
    }
    const int sent = ::ssh_channel_write(channel_.get(), to_channel_.data(),
                                         static_cast<std::uint32_t>(to_channel_.size()));
    if (sent == SSH_ERROR) return false;
    if (sent > 0) to_channel_.erase(0, static_cast<std::size_t>(sent));
    if (!to_channel_.empty()) return true;  // SSH is renewing its keys; the rest is sent later
  }
  return true;
}

SshTunnel::SshTunnel(std::unique_ptr<SshSession> session, HostPort daemon)
    : session_(std::move(session)), daemon_(std::move(daemon)) {}

HostResult<std::unique_ptr<RemoteTunnel>> SshTunnel::Open(std::unique_ptr<SshSession> session,
                                                          const HostPort& daemon) {
  if (!Reaches(*session, daemon)) {
    HostFailure failure = session->DescribeBreak(FailureKind::kPort, kConnecting);
    failure.hint =
        "dsrund's port cannot be dialled from here, so its sshd must forward to it: is it "
        "AllowTcpForwarding no there?";
    return failure;
  }
  std::unique_ptr<SshTunnel> tunnel(new SshTunnel(std::move(session), daemon));
  if (const Status status = tunnel->Listen(); !status.ok()) {
    return HostFailure{.kind = FailureKind::kPort,
                       .message = "the tunnel to its dsrund: " + status.message()};
  }
  return std::unique_ptr<RemoteTunnel>(std::move(tunnel));
}

Status SshTunnel::Listen() {
  DS_ASSIGN_OR_RETURN(folder_, PrivateFolder::Make());
  DS_ASSIGN_OR_RETURN(listener_, ListenUnix(socket_path()));
  session_->KeepOpen();
  packets_ = ::ssh_event_new();
  if (packets_ == nullptr || ::ssh_event_add_session(packets_, session_->handle()) != SSH_OK) {
    return InternalError("libssh: out of memory");
  }
  ::ssh_set_blocking(session_->handle(), 0);
  ::ssh_set_counters(session_->handle(), nullptr, &handled_);
  DS_ASSIGN_OR_RETURN(thread_, PollThread::Get());
  thread_->Add(this);
  return OkStatus();
}

SshTunnel::~SshTunnel() {
  if (thread_ != nullptr) thread_->Remove(this);
  connections_.clear();
  if (packets_ != nullptr) {
    ::ssh_event_remove_session(packets_, session_->handle());
    ::ssh_event_free(packets_);
  }
  folder_.Remove();
}

void SshTunnel::AddWatched(std::vector<pollfd>* watched) {
  const ssh_session handle = session_->handle();
  const bool unsent = (::ssh_get_poll_flags(handle) & SSH_WRITE_PENDING) != 0;
  watched->push_back({listener_.get(), POLLIN, 0});
  watched->push_back(
      {::ssh_get_fd(handle), static_cast<short>(unsent ? POLLIN | POLLOUT : POLLIN), 0});
  for (const auto& connection : connections_) watched->push_back(connection->Watched());
}

bool SshTunnel::OnReady(std::span<const pollfd> watched) {
  if (watched[0].revents != 0) Accept();
  if (::ssh_event_dopoll(packets_, 0) != SSH_ERROR && MoveAll()) return true;
  connections_.clear();
  listener_.Reset();
  return false;
}

// Repeats until libssh handles no more packets: a call for one connection also handles packets of
// the others, and the session's socket is then not readable for these any more.
bool SshTunnel::MoveAll() {
  std::uint64_t handled = 0;
  do {
    handled = handled_.in_packets;
    std::erase_if(connections_, [](const auto& connection) { return !connection->Open(); });
    std::erase_if(connections_, [](const auto& connection) { return !connection->Move(); });
  } while (handled != handled_.in_packets);
  return ::ssh_is_connected(session_->handle()) != 0;
}

void SshTunnel::Accept() {
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket.valid()) return;
  connections_.push_back(std::make_unique<Connection>(
      std::move(socket), Channel(::ssh_channel_new(session_->handle())), &daemon_));
}

}  // namespace

HostResult<std::unique_ptr<RemoteConnection>> LibsshConnection::Open(const RemoteTarget& target,
                                                                     HostKeys* host_keys,
                                                                     HostAttempt* attempt) {
  auto session = std::make_unique<SshSession>(attempt);
  const HostOutcome configured = session->Configure(target);
  if (!configured.ok()) return configured.failure();
  attempt->Enter({"reading the files of known hosts", "does their file system hang?"});
  const HostResult<HostKeyEntries> keys = host_keys->Find(session->host_keys());
  if (!keys.ok()) return keys.failure();
  const HostOutcome reached = session->Connect(keys->PreferredLines());
  if (!reached.ok()) return reached.failure();
  attempt->Enter({"storing the host's key", "does the file system of known_hosts hang?"});
  const HostResult<std::string> known = host_keys->Check(*session, target, *keys);
  if (!known.ok()) return known.failure();
  const HostOutcome let_in = session->Authenticate(target);
  if (!let_in.ok()) return let_in.failure();
  return std::unique_ptr<RemoteConnection>(new LibsshConnection(std::move(session), *known));
}

HostResult<CommandResult> LibsshConnection::Run(const RemoteCommand& command) {
  const Channel channel(::ssh_channel_new(session_->handle()));
  if (channel == nullptr || ::ssh_channel_open_session(channel.get()) != SSH_OK ||
      ::ssh_channel_request_exec(channel.get(), command.line.c_str()) != SSH_OK) {
    return session_->DescribeBreak(FailureKind::kStart, kRunningCommand);
  }
  return Talk(channel.get(), command);
}

HostResult<std::unique_ptr<RemoteTunnel>> LibsshConnection::OpenTunnel(const HostPort& daemon) {
  return SshTunnel::Open(std::move(session_), daemon);
}

// Sends as much as the window accepts, and waits while it is full. A blocking write would wait
// forever if the command has ended without reading. libssh reports that end only after the output
// of the command has been read, so this function reads, too.
bool LibsshConnection::Send(ssh_channel channel, std::string_view input, CommandResult* result) {
  const ssh_session handle = session_->handle();
  while (!input.empty() && ::ssh_is_connected(handle) != 0) {
    if (!ReadSome(channel, false, 0, &result->out) || !ReadSome(channel, true, 0, &result->err)) {
      return false;
    }
    if (::ssh_channel_is_eof(channel) != 0) return true;  // the command's status will explain it
    const std::size_t capacity =
        std::min<std::size_t>(::ssh_channel_window_size(channel), kLongestPiece);
    if (capacity == 0) {
      pollfd packets{::ssh_get_fd(handle), POLLIN, 0};
      ::poll(&packets, 1, kSliceMillis);
      continue;
    }
    const auto part = static_cast<std::uint32_t>(std::min(input.size(), capacity));
    const int written = ::ssh_channel_write(channel, input.data(), part);
    if (written <= 0) return true;
    input.remove_prefix(written);
  }
  return input.empty();
}

HostResult<CommandResult> LibsshConnection::Talk(ssh_channel channel,
                                                 const RemoteCommand& command) {
  CommandResult result;
  if (!Send(channel, command.input, &result)) {
    return session_->DescribeBreak(FailureKind::kStart, kRunningCommand);
  }
  ::ssh_channel_send_eof(channel);
  while (::ssh_channel_is_eof(channel) == 0) {
    if (!ReadSome(channel, false, kSliceMillis, &result.out) ||
        !ReadSome(channel, true, 0, &result.err)) {
      return session_->DescribeBreak(FailureKind::kStart, kRunningCommand);
    }
    if (command.IsEnough(result.out)) {
      result.status = 0;
      return result;
    }
    if (::ssh_is_connected(session_->handle()) == 0) {
      return session_->DescribeBreak(FailureKind::kStart, kRunningCommand);
    }
  }
  ReadSome(channel, false, 0, &result.out);
  ReadSome(channel, true, 0, &result.err);
  result.status = ::ssh_channel_get_exit_status(channel);
  return result;
}

}  // namespace ds::cli
