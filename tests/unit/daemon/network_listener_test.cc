// Who gets a place at a listening daemon: those that come from where the controller is, before
// those from elsewhere, and those who have proved who they are for as long as they like.

#include "daemon/network/network_listener.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ds::daemon {
namespace {

constexpr char kController[] = "127.0.0.3";
constexpr char kElsewhere[] = "127.0.0.2";

class NetworkListenerTest : public ::testing::Test {
 protected:
  NetworkListenerTest() {
    EXPECT_TRUE(listener_
                    ->Start(loop_.get(), kController,
                            [this](UniqueFd given) { given_.push_back(std::move(given)); })
                    .ok());
  }

  UniqueFd ConnectFrom(const char* address) const {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in from = Address(address, 0);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&from), sizeof(from)), 0);
    sockaddr_in to = Address("127.0.0.1", listener_->port());
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    return fd;
  }
  std::vector<UniqueFd> ConnectMany(std::size_t count, const char* address) const {
    std::vector<UniqueFd> connections;
    while (connections.size() < count) connections.push_back(ConnectFrom(address));
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
  std::function<bool()> Given(std::size_t count) const {
    return [this, count] { return given_.size() == count; };
  }

  std::unique_ptr<EventLoop> loop_ = std::move(EventLoop::Create()).value();
  std::unique_ptr<NetworkListener> listener_ =
      std::move(NetworkListener::Bind("127.0.0.1")).value();
  std::vector<UniqueFd> given_;

 private:
  static sockaddr_in Address(const char* address, std::uint16_t port) {
    sockaddr_in result{};
    result.sin_family = AF_INET;
    result.sin_port = htons(port);
    ::inet_pton(AF_INET, address, &result.sin_addr);
    return result;
  }
  void PlayFrom(std::vector<Step>::const_iterator step, std::vector<Step>::const_iterator end) {
    loop_->CallAt(std::chrono::steady_clock::now(), [this, step, end]() mutable {
      if (step->happens()) (step++)->act();
      step == end ? loop_->Quit() : PlayFrom(step, end);
    });
  }
};

TEST_F(NetworkListenerTest, StrangersFromElsewhereHaveFewPlacesOfTheirOwn) {
  constexpr std::size_t kMany = 40;
  const std::vector<UniqueFd> strangers = ConnectMany(kMany, kElsewhere);
  const UniqueFd controller = ConnectFrom(kController);
  const UniqueFd tunnel = ConnectFrom("127.0.0.1");
  Play({{Given(kUnfinishedStrange + 2)}});
  EXPECT_EQ(CountHungUp(strangers), kMany - kUnfinishedStrange);
  EXPECT_FALSE(HungUp(controller));
  EXPECT_FALSE(HungUp(tunnel));
}

TEST_F(NetworkListenerTest, TheOldestUnfinishedConnectionIsClosed) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<UniqueFd> held = ConnectMany(kUnfinishedExpected + 1, kController);
  UniqueFd next;
  Play({{Given(kUnfinishedExpected), [&] { listener_->OnCaller(PeerOf(held[0])); }},
        {Given(kUnfinishedExpected + 1),
         [&] {
           EXPECT_EQ(CountHungUp(held), 0U) << "who is known leaves his place to others";
           next = ConnectFrom(kController);
         }},
        {Given(kUnfinishedExpected + 2)}});
  EXPECT_GE(std::chrono::steady_clock::now() - start, kHandshakeTime);
  EXPECT_FALSE(HungUp(held[0])) << "he is known";
  EXPECT_TRUE(HungUp(held[1]));
  EXPECT_EQ(CountHungUp(held), 1U);
}

TEST_F(NetworkListenerTest, ACallerWithClosedConnectionsIsGoneUnlessItReturns) {
  bool gone = false;
  listener_->WatchCallers(std::chrono::hours(1), [&] { gone = true; });
  UniqueFd first = ConnectFrom(kController);
  UniqueFd second, stranger;
  std::chrono::steady_clock::time_point closed;
  Play({{Given(1),
         [&] {
           listener_->OnCaller(PeerOf(first));
           second = ConnectFrom(kController);
         }},
        {Given(2),
         [&] {
           listener_->OnCaller(PeerOf(second));
           given_.erase(given_.begin());  // the other keeps him here
           first.Reset();
           stranger = ConnectFrom(kElsewhere);
         }},
        {Given(2),
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
