// Who gets a place at a listening daemon: the newest of those that have said something, and those
// who have proved who they are for as long as they like.

#include "daemon/network/network_listener.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ds::daemon {
namespace {

// As many unfinished connections as the test allows.
constexpr std::size_t kFew = 32;

class NetworkListenerTest : public ::testing::Test {
 protected:
  NetworkListenerTest() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit low{kFew * kUnfinishedPartOfFiles, limit.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &low);
    EXPECT_TRUE(
        listener_
            ->Start(loop_.get(), [this](UniqueFd given) { given_.push_back(std::move(given)); })
            .ok());
    ::setrlimit(RLIMIT_NOFILE, &limit);  // the test holds both ends
  }

  UniqueFd ConnectSilently() const {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(listener_->port());
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    return fd;
  }
  UniqueFd Connect() const {
    UniqueFd fd = ConnectSilently();
    EXPECT_EQ(::send(fd.get(), "x", 1, MSG_NOSIGNAL), 1);
    return fd;
  }
  std::vector<UniqueFd> ConnectMany(std::size_t count) const {
    std::vector<UniqueFd> connections;
    while (connections.size() < count) connections.push_back(Connect());
    return connections;
  }

  // As gRPC names the client.
  static std::string PeerOf(const UniqueFd& connection) {
    sockaddr_in own{};
    socklen_t size = sizeof(own);
    EXPECT_EQ(::getsockname(connection.get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
    char text[INET_ADDRSTRLEN];
    ::inet_ntop(AF_INET, &own.sin_addr, text, sizeof(text));
    return "ipv4:" + std::string(text) + ":" + std::to_string(ntohs(own.sin_port));
  }
  static bool HungUp(const UniqueFd& connection) {
    char byte = 0;
    const ssize_t got = ::recv(connection.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }
  static std::size_t CountHungUp(const std::vector<UniqueFd>& connections) {
    return static_cast<std::size_t>(std::count_if(connections.begin(), connections.end(), HungUp));
  }

  // The loop runs until all steps are done; each waits for the one before.
  struct Step {
    std::function<bool()> happens;
    std::function<void()> act = [] {};
  };
  void Play(const std::vector<Step>& steps) {
    PlayFrom(steps.begin(), steps.end());
    EXPECT_TRUE(loop_->Run().ok());
  }
  bool WaitsToBeAccepted() const {
    pollfd waiting{listener_->fd(), POLLIN, 0};
    return ::poll(&waiting, 1, 0) == 1;
  }
  std::function<bool()> Given(std::size_t count) const {
    return [this, count] { return given_.size() == count; };
  }

  std::unique_ptr<EventLoop> loop_ = std::move(EventLoop::Create()).value();
  std::unique_ptr<NetworkListener> listener_ =
      std::move(NetworkListener::Bind("127.0.0.1")).value();
  std::vector<UniqueFd> given_;

 private:
  void PlayFrom(std::vector<Step>::const_iterator step, std::vector<Step>::const_iterator end) {
    loop_->CallAt(std::chrono::steady_clock::now(), [this, step, end]() mutable {
      if (step->happens()) (step++)->act();
      step == end ? loop_->Quit() : PlayFrom(step, end);
    });
  }
};

TEST_F(NetworkListenerTest, SilentConnectionsAreNotAccepted) {
  const UniqueFd silent = ConnectSilently();
  const UniqueFd speaking = Connect();
  char byte = 0;
  Play({{Given(1)}});
  EXPECT_EQ(::recv(given_[0].get(), &byte, 1, MSG_DONTWAIT), 1);
}

TEST_F(NetworkListenerTest, TheOldestUnfinishedConnectionIsClosed) {
  const std::vector<UniqueFd> held = ConnectMany(kFew);
  UniqueFd next, one_more;
  Play({{Given(kFew),
         [&] {
           listener_->OnCaller(PeerOf(held[0]));
           next = Connect();
         }},
        {Given(kFew + 1),
         [&] {
           EXPECT_EQ(CountHungUp(held), 0U) << "who is known leaves his place to others";
           one_more = Connect();
         }},
        {Given(kFew + 2)}});
  EXPECT_FALSE(HungUp(held[0])) << "he is known";
  EXPECT_TRUE(HungUp(held[1]));
  EXPECT_EQ(CountHungUp(held), 1U);
  EXPECT_FALSE(HungUp(next));
}

// gRPC closes what this end has shut down, but may take long for it.
TEST_F(NetworkListenerTest, AConnectionWaitsWhileTooManyAreNotClosed) {
  const std::vector<UniqueFd> held = ConnectMany(2 * kFew);
  UniqueFd next;
  bool is_readable = false;  // since the round before, in which the listener was called, too
  Play({{Given(2 * kFew),
         [&] {
           EXPECT_EQ(CountHungUp(held), kFew);
           next = Connect();
         }},
        {[&] { return std::exchange(is_readable, WaitsToBeAccepted()); }},
        {[&] { return true; },
         [&] {
           EXPECT_EQ(given_.size(), 2 * kFew);
           EXPECT_TRUE(WaitsToBeAccepted());
           given_.erase(given_.begin());  // one of the oldest
         }},
        {Given(2 * kFew)}});
  EXPECT_FALSE(HungUp(next));
  EXPECT_EQ(CountHungUp(held), kFew + 1) << "one more is the oldest";
}

TEST_F(NetworkListenerTest, ACallerWithClosedConnectionsIsGoneUnlessItReturns) {
  bool gone = false;
  listener_->WatchCallers(std::chrono::hours(1), [&] { gone = true; });
  UniqueFd first = Connect();
  UniqueFd second;
  std::chrono::steady_clock::time_point closed;
  Play({{Given(1),
         [&] {
           listener_->OnCaller(PeerOf(first));
           second = Connect();
         }},
        {Given(2),
         [&] {
           listener_->OnCaller(PeerOf(second));
           given_.erase(given_.begin());  // the other keeps him here
           first.Reset();
         }},
        {Given(1),
         [&] {
           EXPECT_FALSE(gone);
           closed = std::chrono::steady_clock::now();
           given_.clear();
         }},
        {[&] { return gone; }}});
  EXPECT_GE(std::chrono::steady_clock::now() - closed, kCallerReturns);
}

}  // namespace
}  // namespace ds::daemon
