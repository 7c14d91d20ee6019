// Several connections through one SSH connection: each gets what is for it, whoever else is served.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/remote/host_keys.h"
#include "cli/remote/interrupter.h"
#include "cli/remote/libssh_connection.h"
#include "runtime/process/unix_socket.h"
#include "tests/support/requirement.h"
#include "tests/support/ssh_hosts.h"

namespace ds::cli {
namespace {

constexpr int kTimeoutMillis = 20'000;

// A server on a port of 127.0.0.1 that says what it is told, until nobody can connect any more.
class EchoServer {
 public:
  EchoServer() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(listener_.get(), raw, size), 0);
    EXPECT_EQ(::listen(listener_.get(), 16), 0);
    EXPECT_EQ(::getsockname(listener_.get(), raw, &size), 0);
    port_ = ::ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~EchoServer() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  EchoServer(const EchoServer&) = delete;
  EchoServer& operator=(const EchoServer&) = delete;

  int port() const { return port_; }

 private:
  static void Echo(const UniqueFd& socket) {
    std::array<char, 4096> said{};
    for (ssize_t size = 0; (size = ::read(socket.get(), said.data(), said.size())) > 0;) {
      if (::send(socket.get(), said.data(), static_cast<std::size_t>(size), MSG_NOSIGNAL) < 0)
        return;
    }
  }
  void Serve() {
    std::vector<std::jthread> served;
    for (;;) {
      UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!socket.valid()) return;
      served.emplace_back([own = std::move(socket)] { Echo(own); });
    }
  }

  UniqueFd listener_;
  int port_ = 0;
  std::thread thread_;
};

// True when the byte has come back.
bool IsAnswered(const UniqueFd& connection) {
  pollfd answer{connection.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&answer, 1, kTimeoutMillis) == 1 && ::read(connection.get(), &byte, 1) == 1;
}

class SshConnectionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = ds::testing::SshHosts::Missing(); !missing.empty()) {
      return ds::testing::SkipWithout("namespaces", missing);
    }
    host_ = std::make_unique<ds::testing::SshHosts>(
        ds::testing::SshHostsOptions{.count = 1, .namespaces = false});
    ::setenv("HOME", host_->client_home().c_str(), 1);
    ::unsetenv("SSH_AUTH_SOCK");
  }
  std::unique_ptr<RemoteTunnel> OpenTunnel(int port) {
    const RemoteTarget target{.name = "h0",
                              .host = host_->address(0),
                              .address = host_->address(0),
                              .port = host_->port(0),
                              .identity = host_->identity()};
    HostAttempt attempt(std::make_shared<Interrupter>(),
                        std::chrono::steady_clock::now() + std::chrono::minutes(1));
    auto connection = LibsshConnection::Open(target, &host_keys_, &attempt);
    if (!connection.ok()) {
      ADD_FAILURE() << connection.failure().message;
      return nullptr;
    }
    auto tunnel = (*connection)->OpenTunnel({"127.0.0.1", port});
    if (tunnel.ok()) return *std::move(tunnel);
    ADD_FAILURE() << tunnel.failure().message;
    return nullptr;
  }

  std::unique_ptr<ds::testing::SshHosts> host_;
  ds::testing::TemporaryFolder folder_;
  HostKeys host_keys_{folder_.path() / "known_hosts"};
};

// libssh reads whatever has come for all of them when it is asked for one: nothing more shows on
// the socket then.
TEST_F(SshConnectionsTest, HandsOverDataReadForAnotherChannel) {
  constexpr int kRounds = 1500;
  const EchoServer server;
  const std::unique_ptr<RemoteTunnel> tunnel = OpenTunnel(server.port());
  ASSERT_NE(tunnel, nullptr);
  std::vector<UniqueFd> connections;
  for (int i = 0; i < 3; ++i) {
    connections.push_back(
        ConnectUnix(tunnel->target().substr(std::string("unix:").size())).value());
  }
  for (int round = 0; round < kRounds; ++round) {
    for (const UniqueFd& each : connections) ASSERT_EQ(::write(each.get(), "x", 1), 1);
    for (const UniqueFd& each : connections) ASSERT_TRUE(IsAnswered(each)) << "round " << round;
  }
}

}  // namespace
}  // namespace ds::cli
