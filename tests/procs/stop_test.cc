// How ranks end: by themselves, by failing, by being stopped, and with their controller.

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"
#include "tests/places.h"
#include "tests/procs/daemon_job.h"
#include "tests/support/daemon_calls.h"
#include "tests/support/program.h"
#include "tests/support/requirement.h"
#include "tests/support/without_cgroups.h"

namespace ds::procs {
namespace {

class StopTest : public DaemonJob {
 protected:
  // The last rank cannot be bound; by then the others run and have left their groups.
  void ExpectFailedStartsLeaveNothing() {
    constexpr int kMany = 64;
    const ds::testing::TemporaryFolder folder;
    const std::string mark = "DSRUN_TEST_MARK=" + folder.path().string();
    for (std::uint32_t generation = 1; generation <= 5; ++generation) {
      v1::LaunchRequest request = Request(kMany, {"escape"}, generation);
      v1::EnvironmentVariable* variable = request.add_environment();
      variable->set_name("DSRUN_TEST_MARK");
      variable->set_value(folder.path().string());
      request.mutable_ranks(kMany - 1)->add_cores(1023);
      int failed = 0;
      Run(request, [&](const v1::Event& event) { failed += event.has_start_failed(); });
      EXPECT_EQ(failed, 1);
      EXPECT_EQ(ds::testing::ProcessesWith(mark), std::vector<pid_t>());
    }
    EXPECT_TRUE(daemon().Close().ok());
    daemon_.reset();
  }
};

v1::StopRequest StopRequest(double grace_seconds) {
  v1::StopRequest request;
  request.set_job_id(kJob);
  request.set_generation(1);
  request.set_grace_seconds(grace_seconds);
  return request;
}

TEST_F(StopTest, AnExitStatusArrives) {
  const Outcome outcome = Run(Request(1, {"exit", "7"}));
  EXPECT_EQ(outcome.exits.at(0).exit_code(), 7);
  EXPECT_EQ(outcome.exits.at(0).signal(), 0);
  EXPECT_FALSE(outcome.exits.at(0).stopping());
  EXPECT_GT(outcome.exits.at(0).max_rss_bytes(), 0U);
  EXPECT_EQ(static_cast<pid_t>(outcome.exits.at(0).pid()), outcome.pids.at(0));
}

TEST_F(StopTest, ASignalArrives) {
  const Outcome outcome = Run(Request(1, {"raise", std::to_string(SIGABRT)}));
  EXPECT_EQ(outcome.exits.at(0).exit_code(), 0);
  EXPECT_EQ(outcome.exits.at(0).signal(), SIGABRT);
}

TEST_F(StopTest, TheFirstFailureStopsTheOthersAndIsTheOnlyOne) {
  v1::LaunchRequest request = Request(8, {"wait"});
  request.set_grace_seconds(60);
  const auto launched = testing::Launch(client(), request);
  ASSERT_TRUE(launched.ok());
  const auto victim = static_cast<pid_t>(launched->pids(3));
  const Outcome outcome = Watch(1, WhenReady(8, [victim] { ::kill(victim, SIGKILL); }));
  ASSERT_EQ(outcome.exits.size(), 8U);
  EXPECT_EQ(outcome.exit_order.front(), 3U);
  for (const auto& [rank, exit] : outcome.exits) {
    EXPECT_EQ(exit.stopping(), rank != 3) << "rank " << rank;
    EXPECT_EQ(exit.signal(), rank == 3 ? SIGKILL : SIGTERM) << "rank " << rank;
  }
}

TEST_F(StopTest, ASuccessfulRankStopsNoOtherRank) {
  v1::LaunchRequest request = Request(2, {"wait"});
  SetArguments(&request, 0, {"exit", "0"});
  bool first_has_ended = false;
  const Outcome outcome = Run(request, [&](const v1::Event& event) {
    first_has_ended = first_has_ended || event.has_rank_exited();
    if (!event.has_rank_exited() || event.rank_exited().rank() != 0) return;
    const auto response = testing::Stop(client(), StopRequest(60));
    ASSERT_TRUE(response.ok());
    EXPECT_EQ(response->ranks_signalled(), 1U);
  });
  EXPECT_TRUE(first_has_ended);
  EXPECT_FALSE(outcome.exits.at(0).stopping());
  EXPECT_EQ(outcome.exits.at(1).signal(), SIGTERM);
  EXPECT_TRUE(outcome.exits.at(1).stopping());
}

TEST_F(StopTest, StoppingTwiceIsFine) {
  const Outcome outcome = [&] {
    EXPECT_TRUE(testing::Launch(client(), Request(4, {"wait"})).ok());
    return Watch(1, WhenReady(4, [&] {
                   EXPECT_EQ(testing::Stop(client(), StopRequest(60))->ranks_signalled(), 4U);
                   EXPECT_EQ(testing::Stop(client(), StopRequest(60))->ranks_signalled(), 0U);
                 }));
  }();
  EXPECT_EQ(outcome.exits.size(), 4U);
  EXPECT_EQ(testing::Stop(client(), StopRequest(60))->ranks_signalled(), 0U);
}

TEST_F(StopTest, RanksThatIgnoreSigtermDieWhenTheGraceIsOver) {
  ASSERT_TRUE(testing::Launch(client(), Request(4, {"stubborn"})).ok());
  const Outcome outcome =
      Watch(1, WhenReady(4, [&] { EXPECT_TRUE(testing::Stop(client(), StopRequest(0.05)).ok()); }));
  for (const auto& [rank, exit] : outcome.exits) EXPECT_EQ(exit.signal(), SIGKILL);
}

// It may be the reason why the job is being stopped at all.
TEST_F(StopTest, ARankKilledByOthersInTheGraceIsNotEndedByTheStop) {
  const auto launched = testing::Launch(client(), Request(2, {"stubborn"}));
  ASSERT_TRUE(launched.ok());
  const auto victim = static_cast<pid_t>(launched->pids(1));
  const auto stop_and_kill = WhenReady(2, [&] {
    EXPECT_TRUE(testing::Stop(client(), StopRequest(3600)).ok());
    ::kill(victim, SIGKILL);
  });
  const Outcome outcome = Watch(1, [&](const v1::Event& event) {
    stop_and_kill(event);
    if (!event.has_rank_exited() || event.rank_exited().rank() != 1) return;
    EXPECT_FALSE(event.rank_exited().stopping());
    EXPECT_TRUE(testing::Stop(client(), StopRequest(0)).ok());
  });
  EXPECT_EQ(outcome.exits.at(0).signal(), SIGKILL);
  EXPECT_TRUE(outcome.exits.at(0).stopping());
}

TEST_F(StopTest, AShorterGraceOfASecondStopCounts) {
  ASSERT_TRUE(testing::Launch(client(), Request(2, {"stubborn"})).ok());
  const Outcome outcome = Watch(1, WhenReady(2, [&] {
                                  EXPECT_TRUE(testing::Stop(client(), StopRequest(3600)).ok());
                                  EXPECT_TRUE(testing::Stop(client(), StopRequest(0)).ok());
                                }));
  for (const auto& [rank, exit] : outcome.exits) EXPECT_EQ(exit.signal(), SIGKILL);
}

TEST_F(StopTest, AStoppedProcessIsStoppedForGood) {
  const auto launched = testing::Launch(client(), Request(1, {"wait"}));
  ASSERT_TRUE(launched.ok());
  const auto pid = static_cast<pid_t>(launched->pids(0));
  const Outcome outcome = Watch(1, WhenReady(1, [&] {
                                  ::kill(pid, SIGSTOP);
                                  EXPECT_TRUE(testing::Stop(client(), StopRequest(3600)).ok());
                                }));
  EXPECT_EQ(outcome.exits.at(0).signal(), SIGTERM);
}

TEST_F(StopTest, AChildThatKeepsTheOutputOpenEndsWithItsRank) {
  const Outcome outcome = Run(Request(1, {"child", "0"}));
  EXPECT_EQ(outcome.exits.at(0).exit_code(), 0);
  EXPECT_TRUE(outcome.exits.at(0).output_cut());
  EXPECT_FALSE(Exists(std::stoi(outcome.out.at(0))));
}

// More than a pipe holds, by a filter that is busy for longer than kOutputGrace when its rank ends.
TEST_F(StopTest, KeepsLateOutputOfAFilterAfterARank) {
  v1::LaunchRequest request = Request(1, {"filtered", "30000"});
  request.set_grace_seconds(60);
  const Outcome outcome = Run(request);
  EXPECT_EQ(outcome.exits.at(0).exit_code(), 0);
  EXPECT_FALSE(outcome.exits.at(0).output_cut());
  EXPECT_EQ(std::count(outcome.out.at(0).begin(), outcome.out.at(0).end(), '\n'), 30000);
}

TEST_F(StopTest, ChildrenAreStoppedWithTheirRank) {
  pid_t child = 0;
  const Outcome outcome = Run(Request(1, {"child"}), [&](const v1::Event& event) {
    if (!event.has_rank_output()) return;
    child = std::stoi(event.rank_output().data());
    EXPECT_TRUE(testing::Stop(client(), StopRequest(0)).ok());
  });
  ASSERT_GT(child, 0);
  EXPECT_FALSE(Exists(child));
}

TEST_F(StopTest, OrphansInSessionsOfTheirOwnEndWithTheJob) {
  const Outcome outcome = Run(Request(4, {"orphan"}));
  for (const auto& [rank, text] : outcome.out) EXPECT_FALSE(Exists(std::stoi(text)));
}

TEST_F(StopTest, TerminatesProcessesOutsideTheRanksGroupWithGrace) {
  const ds::testing::TemporaryFolder folder;
  const std::string file = (folder.path() / "told").string();
  ASSERT_TRUE(testing::Launch(client(), Request(2, {"session", file})).ok());
  int started = 0;
  const Outcome outcome = Watch(1, [&](const v1::Event& event) {
    if (!event.has_rank_output() || ++started < 2) return;
    EXPECT_TRUE(testing::Stop(client(), StopRequest(3600)).ok());
  });
  EXPECT_TRUE(std::filesystem::exists(file));
  for (const auto& [rank, text] : outcome.out) EXPECT_FALSE(Exists(std::stoi(text)));
  for (const auto& [rank, exit] : outcome.exits) EXPECT_EQ(exit.signal(), SIGTERM);
}

TEST_F(StopTest, KillsStubbornProcessesOutsideTheRanksGroupAfterTheGrace) {
  for (const double second_grace : {0.05, 0.0}) {
    const std::uint32_t generation = second_grace > 0 ? 1 : 2;
    ASSERT_TRUE(testing::Launch(client(), Request(1, {"session"}, generation)).ok());
    const Outcome outcome = Watch(generation, [&](const v1::Event& event) {
      v1::StopRequest request = StopRequest(event.has_rank_exited() ? second_grace : 3600);
      request.set_generation(generation);
      if (!event.has_rank_output() && !event.has_rank_exited()) return;
      EXPECT_TRUE(testing::Stop(client(), request).ok());
    });
    EXPECT_FALSE(Exists(std::stoi(outcome.out.at(0))));
    EXPECT_EQ(outcome.exits.at(0).signal(), SIGTERM);
  }
}

TEST_F(StopTest, KillsProcessesOutsideTheRanksGroupThatHoldTheOutput) {
  ASSERT_TRUE(testing::Launch(client(), Request(1, {"escape"})).ok());
  pid_t escapee = 0;
  const Outcome outcome = Watch(1, [&](const v1::Event& event) {
    if (!event.has_rank_output()) return;
    escapee = std::stoi(event.rank_output().data());
    EXPECT_TRUE(testing::Stop(client(), StopRequest(0)).ok());
  });
  ASSERT_GT(escapee, 0);
  EXPECT_FALSE(Exists(escapee));
  EXPECT_EQ(outcome.exits.at(0).signal(), SIGKILL);
}

TEST_F(StopTest, ClosingStopsTheRanks) {
  const auto launched = testing::Launch(client(), Request(4, {"wait"}));
  ASSERT_TRUE(launched.ok());
  EXPECT_TRUE(daemon().Close().ok());
  for (const auto pid : launched->pids()) EXPECT_FALSE(Exists(static_cast<pid_t>(pid)));
}

TEST_F(StopTest, SigtermToTheDaemonStopsTheRanks) {
  ASSERT_TRUE(testing::Launch(client(), Request(4, {"wait"})).ok());
  const int daemon_pid = daemon().pid();
  const Outcome outcome = Watch(1, WhenReady(4, [&] { ::kill(daemon_pid, SIGTERM); }));
  EXPECT_EQ(outcome.exits.size(), 4U);
}

// The ranks, their children, and what has left their groups and sessions.
TEST_F(StopTest, KillingTheDaemonEndsAllThatItsRanksStarted) {
  v1::LaunchRequest request = Request(3, {"escape"});
  SetArguments(&request, 1, {"child"});
  SetArguments(&request, 2, {"session"});
  const auto launched = testing::Launch(client(), request);
  ASSERT_TRUE(launched.ok());
  std::vector<pid_t> processes(launched->pids().begin(), launched->pids().end());
  const int daemon_pid = daemon().pid();
  const Status watched = testing::Watch(client(), {kJob, 1, 0}, [&](const v1::Event& event) {
    if (!event.has_rank_output()) return;
    processes.push_back(std::stoi(event.rank_output().data()));
    if (processes.size() < 6) return;
    for (const pid_t pid : processes) EXPECT_TRUE(Exists(pid));
    ::kill(daemon_pid, SIGKILL);
  });
  EXPECT_EQ(watched.code(), StatusCode::kUnavailable) << watched.message();
  const Status closed = daemon().Close();
  EXPECT_EQ(closed.message(), "dsrund was ended by signal 9");
  for (const pid_t pid : processes) EXPECT_FALSE(Exists(pid));
  daemon_.reset();
}

// With its guardian and without: it has been stopped, or hangs.
TEST_F(StopTest, ADaemonThatDoesNotEndIsNamedAndMayBeKilled) {
  for (const bool guarded : {true, false}) {
    const auto launched = testing::Launch(client(), Request(1, {"wait"}));
    ASSERT_TRUE(launched.ok()) << launched.status().message();
    const UniqueFd rank(static_cast<int>(::syscall(SYS_pidfd_open, launched->pids(0), 0)));
    const std::string process = "process " + std::to_string(daemon().pid());
    ::kill(daemon().pid(), SIGSTOP);
    if (!guarded) ::kill(ds::testing::ParentOf(daemon().pid()), SIGKILL);
    std::vector<std::string> notices;
    const Status closed = daemon().Close([&](const std::string& text) {
      notices.push_back(text);
      EXPECT_TRUE(daemon().Kill());
    });
    EXPECT_EQ(closed.message(), "dsrund was ended by signal 9");
    ASSERT_EQ(notices.size(), 1U);
    EXPECT_NE(notices[0].find(process), std::string::npos) << notices[0];
    pollfd ended{rank.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&ended, 1, /*timeout=*/60'000), 1) << "the rank outlives its daemon";
    daemon_.reset();
    if (guarded) SetUp();
  }
}

// Alone, and above a dsrund that does not end either.
TEST_F(StopTest, AGuardianThatDoesNotEndIsNamedAndMayBeKilled) {
  for (const bool alone : {true, false}) {
    const auto launched = testing::Launch(client(), Request(1, {"wait"}));
    ASSERT_TRUE(launched.ok()) << launched.status().message();
    const UniqueFd rank(static_cast<int>(::syscall(SYS_pidfd_open, launched->pids(0), 0)));
    const pid_t guardian = ds::testing::ParentOf(daemon().pid());
    ::kill(guardian, SIGSTOP);
    if (!alone) ::kill(daemon().pid(), SIGSTOP);
    std::vector<std::string> notices;
    const Status closed = daemon().Close([&](const std::string& text) {
      notices.push_back(text);
      EXPECT_TRUE(daemon().Kill());
    });
    EXPECT_EQ(closed.message(), "dsrund was ended by signal 9");
    ASSERT_EQ(notices.size(), alone ? 1U : 2U);
    EXPECT_NE(notices.back().find("guardian of dsrund, process " + std::to_string(guardian)),
              std::string::npos)
        << notices.back();
    pollfd ended{rank.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&ended, 1, /*timeout=*/60'000), 1) << "the rank outlives its daemon";
    daemon_.reset();
    if (alone) SetUp();
  }
}

// Nobody presses Ctrl-C, as at night.
TEST_F(StopTest, AGuardianThatDoesNotEndIsKilledAutomatically) {
  const pid_t guardian = ds::testing::ParentOf(daemon().pid());
  ::kill(guardian, SIGSTOP);
  std::vector<std::string> notices;
  const Status closed = daemon().Close([&](const std::string& text) { notices.push_back(text); });
  EXPECT_EQ(closed.message(), "dsrund was ended by signal 9");
  ASSERT_FALSE(notices.empty());
  EXPECT_NE(notices.back().find("guardian of dsrund"), std::string::npos) << notices.back();
  EXPECT_FALSE(Exists(guardian));
  daemon_.reset();
}

TEST_F(StopTest, KillingTheGuardianEndsTheDaemonAsATermDoes) {
  const auto launched = testing::Launch(client(), Request(2, {"session"}));
  ASSERT_TRUE(launched.ok());
  const pid_t guardian = ds::testing::ParentOf(daemon().pid());
  bool killed = false;
  const Outcome outcome = Watch(1, [&](const v1::Event& event) {
    if (event.has_rank_output() && !std::exchange(killed, true)) ::kill(guardian, SIGKILL);
  });
  EXPECT_EQ(outcome.exits.size(), 2U);
  for (const auto& [rank, text] : outcome.out) EXPECT_FALSE(Exists(std::stoi(text)));
  EXPECT_FALSE(daemon().Close().ok());
  daemon_.reset();
}

TEST_F(StopTest, AStartThatFailsLeavesNothing) { ExpectFailedStartsLeaveNothing(); }

class StopWithoutGroupsTest : public StopTest {
 protected:
  void SetUp() override {
    if (!ds::testing::CanHideControlGroups()) {
      return ds::testing::SkipWithout("mounts", "control groups cannot be hidden here");
    }
    std::string script = "#!/bin/sh\nexec";
    for (const std::string& word : ds::testing::WithoutControlGroups()) script += " '" + word + "'";
    script += " '" DS_BIN_DIR "/dsrund' \"$@\"\n";
    ASSERT_TRUE(WriteFileAtomically(Dsrund(), script, 0700).ok());
    StopTest::SetUp();
  }
  std::filesystem::path Dsrund() const override { return folder_.path() / "dsrund"; }

 private:
  ds::testing::TemporaryFolder folder_;
};

TEST_F(StopWithoutGroupsTest, AStartThatFailsLeavesNothing) { ExpectFailedStartsLeaveNothing(); }

// The process that started the daemon is killed: its ranks end although nobody asked for it.
TEST(ControllerTest, SigkillOfTheControllerEndsTheRanks) {
  ds::testing::Program controller({DS_TEST_CONTROLLER, DS_BIN_DIR "/dsrund", DS_TEST_RANK});
  ASSERT_TRUE(controller.WaitForOutput("\n")) << controller.err();
  controller.Signal(SIGKILL);
  // The daemon has the controller's standard output open, so this waits for its end too.
  std::istringstream pids(controller.Wait().out);
  int count = 0;
  for (pid_t pid = 0; pids >> pid; ++count) EXPECT_FALSE(Exists(pid)) << pid;
  EXPECT_EQ(count, 4);
}

}  // namespace
}  // namespace ds::procs
