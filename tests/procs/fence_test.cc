// Two generations never live at the same time, whatever befalls the daemon of a lost host or the
// way to it. All of it on the loopback address, with a relay in between.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>
#include <string>

#include "tests/procs/network_job.h"
#include "tests/support/program.h"
#include "tests/support/tcp_relay.h"

namespace ds::procs {
namespace {

using ds::testing::TcpRelay;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// A host is lost after that, and a rank that ignores SIGTERM lives on for a grace.
constexpr seconds kShortLease{3};

class FenceTest : public NetworkJob {
 protected:
  FenceTest() { grace_seconds_ = 1; }

  // The second of two hosts suffers this when its rank runs; a spare takes its place.
  void Run(const std::function<void()>& befalls) {
    spare_ = {.name = "spare"};
    StartJob({{.name = "h0"},
              {.name = "h1",
               .way =
                   [this](int port) {
                     relay_ = std::make_unique<TcpRelay>(port);
                     return relay_->target();
                   }}},
             {TestRankPath(), "alone", (folder_.path() / "lock").string()}, kShortLease);
    ASSERT_FALSE(HasFailure());
    lost_.Reset(static_cast<int>(::syscall(SYS_pidfd_open, pids_[1], 0)));
    listener_.on_ready = befalls;
    const cli::JobOutcome outcome = controller_->Run();
    EXPECT_TRUE(outcome.ok()) << (outcome.ok() ? "" : outcome.failure().message);
    EXPECT_THAT(listener_.text[0], HasSubstr("alone"));
    EXPECT_THAT(listener_.text[1], HasSubstr("alone"));
    EXPECT_THAT(listener_.text[1], Not(HasSubstr("overlap")));
    EXPECT_THAT(listener_.notices, Contains(HasSubstr("ranks on h1 may still run")));
    EXPECT_NE(PortAfter("meets at "), PortAfter("alone at "));
    keeper_->Release();
    pollfd end{lost_.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&end, 1, 60'000), 1) << "the lost daemon lives on";
  }
  std::string PortAfter(const std::string& words) {
    const std::string& text = listener_.text[0];
    const std::size_t at = text.find(words) + words.size();
    return text.substr(at, text.find('\n', at) - at);
  }

  ds::testing::TemporaryFolder folder_;
  std::unique_ptr<TcpRelay> relay_;
  UniqueFd lost_;  // its daemon
};

// A lease's grace is shorter than that.
TEST_F(FenceTest, AfterACutNetwork) {
  grace_seconds_ = 600;
  Run([this] { relay_->Hold(); });
}

TEST_F(FenceTest, FollowsTheLossOfAHostThatStillReceives) {
  Run([this] { relay_->Hold(TcpRelay::Direction::kToClient); });
}

TEST_F(FenceTest, AfterADaemonIsStopped) {
  Run([this] { ::kill(pids_[1], SIGSTOP); });
}

// Then nobody but the kernel is left to end the ranks, and to wake who ends their children.
TEST_F(FenceTest, AfterADaemonIsStoppedTogetherWithItsGuardian) {
  Run([this] {
    ::kill(ds::testing::ParentOf(pids_[1]), SIGSTOP);
    ::kill(pids_[1], SIGSTOP);
  });
}

// It is no proof that the daemon is gone.
TEST_F(FenceTest, AfterAGatewayRefusesConnections) {
  Run([this] { relay_->Refuse(); });
}

TEST_F(FenceTest, AfterADaemonIsKilled) {
  Run([this] { ::kill(pids_[1], SIGKILL); });
}

}  // namespace
}  // namespace ds::procs
