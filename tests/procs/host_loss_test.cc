// Hosts that get lost, seen by the controller: real daemons in network namespaces of their own,
// cables that are pulled, packets that are dropped, daemons that are stopped and killed.
//
// SSH has no part in it: the daemons are started directly.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/procs/network_job.h"
#include "tests/support/requirement.h"
#include "tests/support/ssh_hosts.h"

namespace ds::procs {
namespace {

using cli::Cause;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// A dead connection is seen after two thirds of a lease.
constexpr std::chrono::seconds kLostHostLease{3};

// The network is made once: gRPC's threads stay in the namespace in which they began.
class HostLossTest : public NetworkJob {
 protected:
  static void SetUpTestSuite() {
    if (!ds::testing::SshHosts::Missing().empty()) return;
    hosts_ = std::make_unique<ds::testing::SshHosts>(ds::testing::SshHostsOptions{.count = 3});
  }
  static void TearDownTestSuite() { hosts_.reset(); }

  void SetUp() override {
    if (hosts_ == nullptr)
      return ds::testing::SkipWithout("namespaces", ds::testing::SshHosts::Missing());
    if (!hosts_->namespaces()) return ds::testing::SkipWithout("namespaces", hosts_->why_not());
  }

  // A link that was cut needs a moment to work again.
  static void AwaitReachable(int host) {
    const std::string sshd = "ipv4:" + hosts_->address(host) + ":22";
    for (int i = 0; i < 1000; ++i) {
      if (cli::ProbeTarget(sshd, std::chrono::seconds(5)).reachability ==
          cli::Reachability::kListening) {
        return;
      }
    }
    FAIL() << hosts_->name(host) << " cannot be reached";
  }

  // A job of one rank on each of these hosts.
  void StartOn(const std::vector<int>& hosts, std::vector<std::string> arguments,
               std::chrono::seconds lease = kLostHostLease) {
    std::vector<NetworkJobHost> daemons;
    for (const int host : hosts) {
      AwaitReachable(host);
      daemons.push_back({.name = hosts_->name(host),
                         .address = hosts_->address(host),
                         .wrapper = hosts_->Inside(host, {})});
    }
    arguments.insert(arguments.begin(), TestRankPath());
    StartJob(daemons, arguments, lease);
  }

  void Signal(int host, int node, const char* signal) {
    EXPECT_EQ(hosts_->Run(host, {"kill", signal, std::to_string(pids_[node])}).status, 0);
  }

  // Waits until nothing of the job is left on the host.
  static bool BecomesEmpty(int host) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < limit) {
      if (hosts_->Processes(host).empty()) return true;
      std::this_thread::yield();
    }
    return false;
  }

  static std::unique_ptr<ds::testing::SshHosts> hosts_;
};

std::unique_ptr<ds::testing::SshHosts> HostLossTest::hosts_;

TEST_F(HostLossTest, AJobOnSeveralHostsRunsAndLeavesNothing) {
  StartOn({0, 1}, {"say", "hello\n"});
  ASSERT_FALSE(HasFailure());
  EXPECT_TRUE(controller_->Run().ok());
  EXPECT_EQ(listener_.text.size(), 2U);
  EXPECT_THAT(listener_.notices, IsEmpty());
  keeper_->Release();
  EXPECT_TRUE(BecomesEmpty(0));
  EXPECT_TRUE(BecomesEmpty(1));
}

TEST_F(HostLossTest, APulledCableIsALostHostAndBothSidesStop) {
  StartOn({0, 1}, {"wait"});
  ASSERT_FALSE(HasFailure());
  listener_.on_ready = [&] { hosts_->CutLink(1); };
  const cli::JobOutcome outcome = controller_->Run();
  ASSERT_FALSE(outcome.ok());
  const cli::Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kHostLost);
  EXPECT_EQ(verdict.host, "h1");
  EXPECT_EQ(verdict.exit_code, 4);
  EXPECT_THAT(verdict.proof, HasSubstr("last message at "));
  EXPECT_THAT(verdict.proof, HasSubstr("its port: " + hosts_->address(1)));
  EXPECT_THAT(listener_.notices, Contains(StartsWith("host h1 does not respond")));
  EXPECT_TRUE(BecomesEmpty(1)) << "its daemon's lease ends the rank while the cable is out";
  hosts_->RestoreLink(1);
  keeper_->Release();
  EXPECT_TRUE(BecomesEmpty(0));
}

TEST_F(HostLossTest, AnInterruptionShorterThanTheLeaseCostsNothing) {
  StartOn({0, 1}, {"wait"}, std::chrono::seconds(12));
  ASSERT_FALSE(HasFailure());
  listener_.on_ready = [&] { hosts_->CutLink(1); };
  listener_.on_notice = [&](const std::string& notice) {
    // Two thirds of the lease have passed.
    if (notice.find("does not respond") != std::string::npos) hosts_->RestoreLink(1);
    if (notice == "host h1 is responding again") controller_->OnSignal(SIGINT);
  };
  const cli::JobOutcome outcome = controller_->Run();
  hosts_->RestoreLink(1);
  ASSERT_FALSE(outcome.ok());
  const cli::Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kUserStop) << verdict.message;
  keeper_->Release();
  EXPECT_TRUE(BecomesEmpty(0));
  EXPECT_TRUE(BecomesEmpty(1));
}

TEST_F(HostLossTest, AHostThatReceivesButCannotSendIsLost) {
  StartOn({0, 1}, {"wait"});
  ASSERT_FALSE(HasFailure());
  listener_.on_ready = [&] { hosts_->Silence(1); };
  const cli::JobOutcome outcome = controller_->Run();
  hosts_->Speak(1);
  ASSERT_FALSE(outcome.ok());
  const cli::Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kHostLost);
  EXPECT_EQ(verdict.host, "h1");
  keeper_->Release();
  EXPECT_TRUE(BecomesEmpty(0));
  EXPECT_TRUE(BecomesEmpty(1));
}

TEST_F(HostLossTest, AStoppedDaemonIsALostHostWithAnOpenPort) {
  StartOn({0, 1}, {"wait"});
  ASSERT_FALSE(HasFailure());
  listener_.on_ready = [&] { Signal(1, 1, "-STOP"); };
  const cli::JobOutcome outcome = controller_->Run();
  ASSERT_FALSE(outcome.ok());
  const cli::Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kHostLost);
  EXPECT_THAT(verdict.proof, HasSubstr("takes connections"));
  EXPECT_THAT(verdict.hint, HasSubstr("the host answers but dsrund does not"));
  keeper_->Release();
  EXPECT_TRUE(BecomesEmpty(1)) << "the kernel ends what has been stopped when its lease is over";
}

TEST_F(HostLossTest, AKilledDaemonIsALostDaemonOnAHostThatIsThere) {
  StartOn({0, 1}, {"wait"});
  ASSERT_FALSE(HasFailure());
  listener_.on_ready = [&] { Signal(1, 1, "-KILL"); };
  const cli::JobOutcome outcome = controller_->Run();
  ASSERT_FALSE(outcome.ok());
  const cli::Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kDaemonLost);
  EXPECT_EQ(verdict.host, "h1");
  EXPECT_EQ(verdict.exit_code, 4);
  EXPECT_THAT(verdict.proof, HasSubstr("Connection refused"));
  EXPECT_TRUE(BecomesEmpty(1)) << "the kernel ends its ranks with it";
  keeper_->Release();
}

TEST_F(HostLossTest, ATerminatedDaemonReportsIt) {
  StartOn({0, 1}, {"wait"});
  ASSERT_FALSE(HasFailure());
  listener_.on_ready = [&] { Signal(1, 1, "-TERM"); };
  const cli::JobOutcome outcome = controller_->Run();
  ASSERT_FALSE(outcome.ok());
  const cli::Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kDaemonLost);
  EXPECT_EQ(verdict.message, "the daemon of host h1 was terminated");
  keeper_->Release();
  EXPECT_TRUE(BecomesEmpty(0));
  EXPECT_TRUE(BecomesEmpty(1));
}

// The controller hears nobody out any more: every daemon ends its ranks with its lease.
TEST_F(HostLossTest, WithoutTheirControllerAllHostsStop) {
  StartOn({0, 1}, {"wait"});
  ASSERT_FALSE(HasFailure());
  listener_.on_ready = [&] {
    hosts_->CutLink(0);
    hosts_->CutLink(1);
  };
  const cli::JobOutcome outcome = controller_->Run();
  ASSERT_FALSE(outcome.ok());
  const cli::Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kHostLost);
  EXPECT_TRUE(BecomesEmpty(0));
  EXPECT_TRUE(BecomesEmpty(1));
  hosts_->RestoreLink(0);
  hosts_->RestoreLink(1);
}

// Last: the host does not come back.
TEST_F(HostLossTest, ThePowerFails) {
  StartOn({0, 2}, {"wait"});
  ASSERT_FALSE(HasFailure());
  listener_.on_ready = [&] { hosts_->PowerOff(2); };
  const cli::JobOutcome outcome = controller_->Run();
  ASSERT_FALSE(outcome.ok());
  const cli::Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kHostLost);
  EXPECT_EQ(verdict.host, "h2");
  keeper_->Release();
  EXPECT_TRUE(BecomesEmpty(0));
}

}  // namespace
}  // namespace ds::procs
