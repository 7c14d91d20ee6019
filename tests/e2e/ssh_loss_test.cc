// Jobs over SSH whose hosts or whose dsrun get lost.

#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>

#include "runtime/base/files.h"
#include "tests/e2e/ssh_job.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A child in a session of its own outlives its rank, unless somebody ends it.
constexpr char kStay[] = "setsid sleep 600 & echo up $RANK; exec sleep 600";

class SshLossTest : public SshJob {
 protected:
  // A job of one rank on each of two hosts, all of them up. Their lines differ, else they were
  // shown as one.
  std::unique_ptr<Program> Start(const std::string& lease) {
    WriteHostfile(1);
    auto dsrun = std::make_unique<Program>(
        Command({"--lease_seconds", lease}, kStay),
        ProgramOptions{.environment = hosts().Environment(), .working_directory = folder()});
    EXPECT_TRUE(dsrun->WaitForOutput("0@h0: up 0\n")) << dsrun->err();
    EXPECT_TRUE(dsrun->WaitForOutput("1@h1: up 1\n")) << dsrun->err();
    return dsrun;
  }
  // Waits until the job has recorded the end of the rank.
  bool AwaitRecordedExit(int rank) const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < limit) {
      const auto text = ReadFile(run() / "events.jsonl");
      std::istringstream events(text.ok() ? *text : "");
      for (std::string line; std::getline(events, line);) {
        const auto event = nlohmann::json::parse(line, nullptr, false);
        if (!event.is_object() || event["event"] != "rank_exited") continue;
        if (event["rank"] == rank) return true;
      }
      std::this_thread::yield();
    }
    return false;
  }
};

// Long before the lease is over.
TEST_F(SshLossTest, AKilledDsrunLeavesNothing) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  const auto dsrun = Start("600");
  dsrun->Signal(SIGKILL);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(BecomesEmpty(i));
    ExpectNothingLeft(i);
  }
}

TEST_F(SshLossTest, AnotherAgentTakesOverTheHostsOfAKilledOne) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  WriteHostfile(1);
  ExpectTakeovers("h1");
}

TEST_F(SshLossTest, NothingIsLeftOfAKilledDaemon) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  const auto dsrun = Start("4");
  OnHost(1, "kill -9 $(pgrep -x dsrund-.*)");
  EXPECT_EQ(dsrun->Wait().status, 4);
  EXPECT_TRUE(BecomesEmpty(1));
  EXPECT_THAT(OnHost(1, "cat /root/.cache/dsrun/log/*; rm /root/.cache/dsrun/log/*"),
              HasSubstr("was ended by signal 9 (Killed)\n"));
  ExpectNothingLeft(1);
}

TEST_F(SshLossTest, APulledCableIsTheVerdict) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  const auto dsrun = Start("4");
  hosts().CutLink(1);
  const ProgramResult result = dsrun->Wait();
  EXPECT_EQ(result.status, 4) << result.err;
  EXPECT_EQ(Verdict()["cause"], "host_lost");
  EXPECT_EQ(Verdict()["host"], "h1");
  EXPECT_EQ(Verdict()["exit_code"], 4);
  EXPECT_THAT(Verdict()["proof"].get<std::string>(), StartsWith("last message at "));
  EXPECT_THAT(result.err, HasSubstr("host h1 is lost: it sent nothing for "));
  ExpectNothingLeft(0);
  EXPECT_TRUE(BecomesEmpty(1));
}

TEST_F(SshLossTest, AKilledDaemonIsReplacedOnItsHostIfNoSpareIsThere) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  WriteHostfile(1);
  Program dsrun(Command({"--lease_seconds", "4", "--max_restarts", "1"},
                        "echo try $DSRUN_GENERATION rank $RANK; "
                        "[ $DSRUN_GENERATION = 1 ] || exec sleep 600"),
                {.environment = hosts().Environment(), .working_directory = folder()});
  ASSERT_TRUE(dsrun.WaitForOutput("1@h1: try 0 rank 1\n")) << dsrun.err();
  OnHost(1, "kill -9 $(pgrep -x dsrund-.*)");
  const ProgramResult result = dsrun.Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1@h1: try 1 rank 1\n"));
  EXPECT_THAT(result.err, HasSubstr("a new daemon runs on host h1"));
  for (int i = 0; i < 2; ++i) ExpectNothingLeft(i);
}

// The host of rank 0 cannot report its end before dsrun has recorded that of rank 1. Renewals, one
// in 1.5 s, relate the clocks of the hosts: some are answered before that host is silent.
TEST_F(SshLossTest, TheFirstFailureIsBlamedAlthoughItsReportComesLater) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  WriteHostfile(1);
  Program dsrun(Command({"--lease_seconds", "600"}, R"(
      if [ $RANK = 0 ]; then
        mkfifo /tmp/ends; sleep 4; echo ready 0; echo $$ >/tmp/ends; exit 9
      fi
      mkfifo /tmp/go; echo ready 1; read _ </tmp/go; exit 1)"),
                {.environment = hosts().Environment(), .working_directory = folder()});
  ASSERT_TRUE(dsrun.WaitForOutput("0@h0: ready 0\n")) << dsrun.err();
  ASSERT_TRUE(dsrun.WaitForOutput("1@h1: ready 1\n")) << dsrun.err();
  hosts().Silence(0);
  OnHost(0,
         "read rank </tmp/ends; "
         "while grep -qs 'State:.[^ZX]' /proc/$rank/status; do :; done");
  // Longer than the clocks of the hosts are apart by what dsrun knows: half of a round trip.
  OnHost(1, "sleep 3; echo >/tmp/go");
  EXPECT_TRUE(AwaitRecordedExit(1));
  hosts().Speak(0);
  EXPECT_EQ(dsrun.Wait().status, 9);
  EXPECT_EQ(Verdict()["rank"], 0);
}

class SshSpareTest : public SshLossTest {
 protected:
  void SetUp() override {
    SshLossTest::SetUp();
    options_.count = 3;
  }
  // A job of one rank on each of h0 and h1, up, with h2 as spare, whose second try ends well.
  std::unique_ptr<Program> StartWithSpare(const std::string& lease) {
    WriteHostfile(hosts().HostfileLine(0, 1) + "\n" + hosts().HostfileLine(1, 1) + "\n" +
                  hosts().HostfileLine(2, 1, "spare") + "\n");
    auto dsrun = std::make_unique<Program>(
        Command({"--lease_seconds", lease, "--max_restarts", "1"},
                "echo try $DSRUN_GENERATION rank $RANK of $WORLD_SIZE meets at $MASTER_ADDR; "
                "[ $DSRUN_GENERATION = 1 ] || exec sleep 600"),
        ProgramOptions{.environment = hosts().Environment(), .working_directory = folder()});
    EXPECT_TRUE(dsrun->WaitForOutput("0@h0: try 0 rank 0 of 2")) << dsrun->err();
    EXPECT_TRUE(dsrun->WaitForOutput("1@h1: try 0 rank 1 of 2")) << dsrun->err();
    EXPECT_THAT(OnHost(2, "pgrep dsrund || echo none"), StartsWith("none"));
    return dsrun;
  }
};

// One host does not answer, or refuses the job: neither is a restart.
TEST_F(SshSpareTest, ASpareTakesPartFromTheStart) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  const std::string first = hosts().HostfileLine(0, 1) + "\n";
  const std::string spare = hosts().HostfileLine(2, 1, "spare") + "\n";
  WriteHostfile(first + "h1 slots=1 port=1 workdir=/ address=" + hosts().address(1) + "\n" + spare);
  const ProgramResult unreachable = Run("echo rank $RANK runs");
  EXPECT_EQ(unreachable.status, 0) << unreachable.err;
  EXPECT_THAT(unreachable.out, HasSubstr("1@h2: rank 1 runs\n"));
  EXPECT_THAT(unreachable.err, HasSubstr("spare host h2 replaces host h1"));
  WriteHostfile(first + hosts().HostfileLine(1, 1, "workdir=/nowhere") + "\n" + spare);
  const ProgramResult refused = Run("echo rank $RANK runs");
  EXPECT_EQ(refused.status, 0) << refused.err;
  EXPECT_THAT(refused.out, HasSubstr("1@h2: rank 1 runs\n"));
  EXPECT_THAT(refused.err, HasSubstr("/nowhere"));
  for (const int host : {0, 1, 2}) ExpectNothingLeft(host);
}

TEST_F(SshSpareTest, TwoNamesOfOneMachineAreRefused) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  WriteHostfile(hosts().HostfileLine(0, 1) +
                "\nalias slots=1 workdir=/ address=" + hosts().address(0) + "\n");
  ExpectRefused({}, {"hosts h0 and alias of ", " are one machine"});
}

TEST_F(SshSpareTest, ASpareResumesInPlaceOfALostHost) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  const auto dsrun = StartWithSpare("4");
  hosts().CutLink(1);
  const ProgramResult result = dsrun->Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  const std::string meets = " of 2 meets at " + hosts().address(0) + "\n";
  EXPECT_THAT(result.out, HasSubstr("0@h0: try 1 rank 0" + meets));
  EXPECT_THAT(result.out, HasSubstr("1@h2: try 1 rank 1" + meets));
  EXPECT_THAT(result.err, HasSubstr("spare host h2 replaces host h1"));
  for (const int host : {0, 2}) ExpectNothingLeft(host);
  EXPECT_TRUE(BecomesEmpty(1));
}

TEST_F(SshSpareTest, ASpareIsWhereTheRanksMeetWhenTheFirstDaemonWasKilled) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  const auto dsrun = StartWithSpare("4");
  OnHost(0, "kill -9 $(pgrep -x dsrund-.*)");
  const ProgramResult result = dsrun->Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  const std::string meets = " of 2 meets at " + hosts().address(2) + "\n";
  EXPECT_THAT(result.out, HasSubstr("0@h2: try 1 rank 0" + meets));
  EXPECT_THAT(result.out, HasSubstr("1@h1: try 1 rank 1" + meets));
  for (const int host : {1, 2}) ExpectNothingLeft(host);
}

TEST_F(SshLossTest, AStoppedAgentReportsItsLostLease) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  const auto dsrun = Start("8");
  const pid_t agent = AgentPid();
  ASSERT_GT(agent, 0);
  ::kill(agent, SIGSTOP);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(BecomesEmpty(i));
  ::kill(agent, SIGCONT);
  const ProgramResult result = dsrun->Wait();
  EXPECT_EQ(result.status, 4) << result.err;
  EXPECT_EQ(Verdict()["cause"], "suspended");
  EXPECT_EQ(Verdict()["host"], "");
  EXPECT_THAT(Verdict()["message"].get<std::string>(),
              StartsWith("dsrun itself was suspended for"));
}

TEST_F(SshLossTest, ALeaseLastsUntilTheSlowestHostIsReady) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  WriteHostfile(1);
  hosts().Silence(1);
  Program dsrun(Command({"--lease_seconds", "6"}, "echo up; sleep 12"),
                {.environment = hosts().Environment(), .working_directory = folder()});
  ASSERT_TRUE(dsrun.WaitForOutput("1 of 2 hosts ready; waiting for h1"));
  OnHost(0, "sleep 7");  // more than a lease, and the ranks take two
  hosts().Speak(1);
  const ProgramResult result = dsrun.Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  for (int i = 0; i < 2; ++i) ExpectNothingLeft(i);
}

}  // namespace
}  // namespace ds::testing
