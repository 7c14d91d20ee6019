// What a network does to a job between dsrun and a daemon: it is slow, thin, deaf on one side, and
// it breaks. All of it on the loopback address, with a relay in between.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/front/input_forwarder.h"
#include "runtime/base/files.h"
#include "tests/procs/network_job.h"
#include "tests/procs/strangers.h"
#include "tests/support/tcp_relay.h"

namespace ds::procs {
namespace {

using cli::Cause;
using ds::testing::TcpRelay;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// A dead connection is seen after two thirds of a lease.
constexpr seconds kBadNetworkLease{3};

// The daemon of rank `relayed` is reached through the relay, the other one straight.
class BadNetworkTest : public NetworkJob {
 protected:
  void Start(int relayed, const std::vector<std::string>& argv, seconds lease = kBadNetworkLease,
             cli::InputForwarder* input = nullptr) {
    std::vector<NetworkJobHost> hosts = {{.name = "h0"}, {.name = "h1"}};
    hosts[static_cast<std::size_t>(relayed)].way = [this](int port) {
      port_ = port;
      relay_ = std::make_unique<TcpRelay>(port);
      return relay_->target();
    };
    StartJob(hosts, argv, lease, input);
    for (const pid_t pid : pids_) {
      ends_.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    }
  }
  // Waits for the end of this host's daemon.
  bool Ends(std::size_t host) const {
    pollfd end{ends_.at(host).get(), POLLIN, 0};
    return ::poll(&end, 1, 60'000) == 1;
  }
  // Breaks the relay's connections each time that the rank has said so many bytes more.
  void CutEvery(std::size_t bytes, std::uint32_t rank) {
    listener_.on_output = [this, bytes, rank, next = bytes]() mutable {
      if (listener_.text[rank].size() < next) return;
      next += bytes;
      ++cuts_;
      relay_->Cut();
    };
  }

  std::unique_ptr<TcpRelay> relay_;
  int port_ = 0;  // of the daemon behind the relay
  int cuts_ = 0;

 private:
  std::vector<UniqueFd> ends_;
};

TEST_F(BadNetworkTest, ASlowThinNetworkThatBreaksLosesNothing) {
  Start(1, {TestRankPath(), "lines", "20000"}, seconds(30));
  ASSERT_FALSE(HasFailure());
  relay_->Delay(milliseconds(20));
  relay_->LimitBandwidth(1'000'000);
  CutEvery(150'000, 1);
  const cli::JobOutcome outcome = controller_->Run();
  EXPECT_TRUE(outcome.ok()) << (outcome.ok() ? "" : outcome.failure().proof);
  EXPECT_GE(cuts_, 2);
  EXPECT_EQ(listener_.text[1].size(), listener_.text[0].size());
  EXPECT_THAT(listener_.text[1], HasSubstr("\nrank 1 line 19999 "));
  keeper_->Release();
  EXPECT_TRUE(Ends(0));
  EXPECT_TRUE(Ends(1));
}

// Other users of the controller's host connect to the daemon. All come from one address.
TEST_F(BadNetworkTest, StrangersDoNotKeepTheControllerFromComingBack) {
  Start(1, {TestRankPath(), "lines", "20000"});
  ASSERT_FALSE(HasFailure());
  const std::vector<UniqueFd> silent = ConnectStrangers(300, port_, "");
  const std::vector<UniqueFd> talking = ConnectStrangers(100, port_, kFirstByte);
  CutEvery(150'000, 1);
  const cli::JobOutcome outcome = controller_->Run();
  EXPECT_TRUE(outcome.ok()) << (outcome.ok() ? "" : outcome.failure().proof);
  EXPECT_GE(cuts_, 2);
  EXPECT_EQ(listener_.text[1].size(), listener_.text[0].size());
  keeper_->Release();
  EXPECT_TRUE(Ends(0));
  EXPECT_TRUE(Ends(1));
}

TEST_F(BadNetworkTest, AHostThatReceivesButCannotSendIsLost) {
  Start(1, {TestRankPath(), "wait"});
  ASSERT_FALSE(HasFailure());
  listener_.on_ready = [&] { relay_->Hold(TcpRelay::Direction::kToClient); };
  const cli::JobOutcome outcome = controller_->Run();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.failure().cause, Cause::kHostLost);
  EXPECT_EQ(outcome.failure().host, "h1");
  keeper_->Release();
  EXPECT_TRUE(Ends(0));
  EXPECT_TRUE(Ends(1)) << "nobody renews its lease";
}

TEST_F(BadNetworkTest, AHostThatSendsButCannotReceiveIsLost) {
  Start(1, {TestRankPath(), "wait"});
  ASSERT_FALSE(HasFailure());
  listener_.on_ready = [&] { relay_->Hold(TcpRelay::Direction::kToServer); };
  const cli::JobOutcome outcome = controller_->Run();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.failure().cause, Cause::kHostLost);
  EXPECT_EQ(outcome.failure().host, "h1");
  EXPECT_TRUE(Ends(1)) << "its lease ends its rank while nothing gets through";
  keeper_->Release();
  EXPECT_TRUE(Ends(0));
}

TEST_F(BadNetworkTest, AnInterruptionShorterThanTheLeaseCostsNothing) {
  Start(1, {TestRankPath(), "wait"}, seconds(12));
  ASSERT_FALSE(HasFailure());
  listener_.on_ready = [&] { relay_->Hold(); };
  listener_.on_notice = [&](const std::string& notice) {
    // Two thirds of the lease have passed.
    if (notice.find("does not respond") != std::string::npos) relay_->Release();
    if (notice == "host h1 is responding again") controller_->OnSignal(SIGINT);
  };
  const cli::JobOutcome outcome = controller_->Run();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.failure().cause, Cause::kUserStop) << outcome.failure().message;
  keeper_->Release();
  EXPECT_TRUE(Ends(0));
  EXPECT_TRUE(Ends(1));
}

// Byte for byte over TLS, none twice and none left out, though calls are cut off half-way.
TEST_F(BadNetworkTest, StandardInputReachesRankZeroOnAnotherHost) {
  std::mt19937 random(7);
  std::string sent;
  while (sent.size() < 1 << 20) sent += static_cast<char>(random() % 256);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  cli::InputForwarder input(reading.get());
  Start(0, {"/bin/cat"}, seconds(30), &input);
  ASSERT_FALSE(HasFailure());
  std::thread writer(
      [&sent, end = std::move(writing)] { EXPECT_TRUE(WriteAll(end.get(), sent, "pipe").ok()); });
  CutEvery(200'000, 0);
  const cli::JobOutcome outcome = controller_->Run();
  writer.join();
  EXPECT_TRUE(outcome.ok()) << (outcome.ok() ? "" : outcome.failure().proof);
  EXPECT_GE(cuts_, 4);
  EXPECT_TRUE(listener_.text[0] == sent) << listener_.text[0].size() << " bytes";
  EXPECT_EQ(listener_.text[1], "");
  keeper_->Release();
}

}  // namespace
}  // namespace ds::procs
