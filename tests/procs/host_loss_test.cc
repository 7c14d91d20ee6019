// Hosts that get lost, seen by the controller: real daemons in network namespaces of their own,
// cables that are pulled, packets that are dropped, daemons that are stopped and killed.
//
// SSH has no part in it: the daemons are started directly.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cli/host/network_host.h"
#include "cli/job/job_controller.h"
#include "proto/peer_name.h"
#include "tests/procs/network_daemon.h"
#include "tests/support/ssh_hosts.h"

namespace ds::procs {
namespace {

using cli::Cause;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// A dead connection is seen after two thirds of a lease.
constexpr std::chrono::seconds kLease{3};

// What the ranks said; `on_ready` is called once, when `expected` of them have said "ready".
class Listener : public cli::JobObserver {
 public:
  void OnPrepared(const std::string&, const v1::PrepareResponse&) override {}
  Status OnEvent(const cli::HostEvent& event) override {
    if (!event.event.has_rank_output()) return OkStatus();
    const v1::RankOutput& output = event.event.rank_output();
    text[output.rank()] += output.data();
    if (on_output) on_output();
    if (output.data() == "ready\n" && --expected == 0 && on_ready) on_ready();
    return OkStatus();
  }
  void OnNotice(const std::string& notice) override {
    notices.push_back(notice);
    if (on_notice) on_notice(notice);
  }
  void OnQuiet() override {}

  int expected = 2;
  std::function<void()> on_ready;
  std::function<void()> on_output;
  std::function<void(const std::string&)> on_notice;
  std::map<std::uint32_t, std::string> text;
  std::vector<std::string> notices;
};

// The network is made once: gRPC's threads stay in the namespace in which they began.
// One program for every generation.
class FixedProgram : public cli::Program {
 public:
  StatusOr<cli::RankProgram> ForGeneration(int) const override {
    return cli::RankProgram{.argv = argv};
  }

  std::vector<std::string> argv;
};

class HostLossTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!ds::testing::SshHosts::Missing().empty()) return;
    hosts_ = std::make_unique<ds::testing::SshHosts>(ds::testing::SshHostsOptions{.count = 3});
  }
  static void TearDownTestSuite() { hosts_.reset(); }

  void SetUp() override {
    if (hosts_ == nullptr) GTEST_SKIP() << ds::testing::SshHosts::Missing();
    if (!hosts_->namespaces()) GTEST_SKIP() << hosts_->why_not();
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
  void StartOn(std::vector<int> hosts, std::vector<std::string> arguments,
               std::chrono::seconds lease = kLease) {
    keeper_ = std::make_unique<cli::LeaseKeeper>(lease);
    const auto authority = cli::JobAuthority::Create(kJob);
    std::vector<cli::HostSlots> slots;
    for (std::size_t node = 0; node < hosts.size(); ++node) {
      const int host = hosts[node];
      const int index = static_cast<int>(node);
      AwaitReachable(host);
      const ListenAnswer answer = Listen(
          {.address = hosts_->address(host), .wrapper = hosts_->Inside(host, {})},
          ListenLine(authority->IssueDaemon(index).value(), static_cast<double>(lease.count())));
      ASSERT_GT(answer.port, 0) << answer.error;
      pids_.push_back(answer.pid);
      const cli::TlsOptions tls{.credentials = authority->IssueController().value(),
                                .daemon_name = v1::DaemonPeerName(kJob, index),
                                .lease = lease};
      const std::string target =
          "ipv4:" + hosts_->address(host) + ":" + std::to_string(answer.port);
      daemons_.push_back(std::make_unique<cli::NetworkHost>(kJob, target, tls));
      keeper_->Add(index, daemons_.back().get());
      slots.push_back({.host = hosts_->name(host), .slots = {0}});
    }
    cli::JobPlan plan{.job_id = kJob,
                      .flags = {.grace_seconds = 10},
                      .world = cli::PlanWorld(slots),
                      .master_addr = hosts_->address(hosts[0])};
    for (cli::JobHost& host : plan.world.hosts) host.working_directory = "/";
    arguments.insert(arguments.begin(), TestRankPath());
    program_.argv = std::move(arguments);
    std::vector<cli::HostDaemon*> daemons;
    for (const auto& daemon : daemons_) daemons.push_back(daemon.get());
    controller_ = std::make_unique<cli::JobController>(plan, &program_, daemons, &listener_,
                                                       cli::JobController::Partners{});
    keeper_->Listen([this](const cli::HostChange& change) { controller_->OnHostChange(change); });
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
  Listener listener_;
  FixedProgram program_;
  std::vector<pid_t> pids_;  // of the daemons, as their hosts number them
  std::vector<std::unique_ptr<cli::NetworkHost>> daemons_;
  std::unique_ptr<cli::JobController> controller_;
  std::unique_ptr<cli::LeaseKeeper> keeper_;  // calls the controller
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
  EXPECT_THAT(verdict.proof, HasSubstr("last heard at "));
  EXPECT_THAT(verdict.proof, HasSubstr("its port: " + hosts_->address(1)));
  EXPECT_THAT(listener_.notices, Contains(StartsWith("host h1 is not heard from")));
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
    if (notice.find("is not heard from") != std::string::npos) hosts_->RestoreLink(1);
    if (notice == "host h1 is heard from again") controller_->OnSignal(SIGINT);
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

TEST_F(HostLossTest, AHostThatHearsButIsNotHeardIsLost) {
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

TEST_F(HostLossTest, DelayedAndDroppedPacketsLoseNothing) {
  if (!hosts_->Impair(1, "delay 20ms 10ms loss 3%")) GTEST_SKIP() << "this kernel has no netem";
  StartOn({0, 1}, {"lines", "20000"});
  EXPECT_TRUE(controller_->Run().ok());
  EXPECT_EQ(listener_.text[1].size(), listener_.text[0].size());
  EXPECT_THAT(listener_.text[1], HasSubstr("\nrank 1 line 19999 "));
  EXPECT_TRUE(hosts_->Impair(1, ""));
  keeper_->Release();
  EXPECT_TRUE(BecomesEmpty(1));
}

TEST_F(HostLossTest, AStoppedDaemonIsALostHostWhosePortIsOpen) {
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
  EXPECT_THAT(hosts_->Processes(1), ::testing::Not(IsEmpty()));
  Signal(1, 1, "-CONT");
  EXPECT_TRUE(BecomesEmpty(1)) << "its lease is over, which it sees when it goes on";
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

TEST_F(HostLossTest, ADaemonThatIsToldToEndSaysSo) {
  StartOn({0, 1}, {"wait"});
  ASSERT_FALSE(HasFailure());
  listener_.on_ready = [&] { Signal(1, 1, "-TERM"); };
  const cli::JobOutcome outcome = controller_->Run();
  ASSERT_FALSE(outcome.ok());
  const cli::Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kDaemonLost);
  EXPECT_EQ(verdict.message, "the daemon of host h1 was told to end");
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
