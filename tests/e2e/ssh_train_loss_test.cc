// A training job on several hosts that loses something: the verdict names it within the lease, and
// nothing is left on any host.

#include <gmock/gmock.h>

#include <chrono>
#include <csignal>

#include "tests/e2e/ssh_train_job.h"

namespace ds::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Not;

class SshTrainLossTest : public SshTrainJob {
 protected:
  void SetUp() override {
    SshTrainJob::SetUp();
    if (!IsSkipped() && !hosts().namespaces()) SkipWithout("namespaces", hosts().why_not());
  }

  // The verdict block of the terminal says what verdict.json says.
  void ExpectVerdict(const ProgramResult& result, int status, const std::string& cause,
                     const std::string& host) {
    EXPECT_EQ(result.status, status) << result.err;
    const nlohmann::json verdict = JobVerdict();
    EXPECT_EQ(verdict["cause"], cause) << verdict;
    EXPECT_EQ(verdict["host"], host) << verdict;
    EXPECT_EQ(verdict["exit_code"], status) << verdict;
    EXPECT_THAT(result.err, HasSubstr(verdict["message"].get<std::string>()));
  }
  void ExpectNothingLeftOn(const std::vector<int>& places) {
    for (const int host : places) {
      EXPECT_TRUE(BecomesEmpty(host));
      RemoveLastMessages(host);
      ExpectNothingLeft(host);
    }
  }

  // What is lost is lost now, under the lease that Start was given.
  static constexpr std::chrono::seconds kLease{5};
  void NoteLoss() { lost_ = std::chrono::steady_clock::now(); }
  // The verdict was there within the lease; the rest is for ranks to be stopped, with the grace
  // that they have, on a machine with much else to do.
  void ExpectVerdictWithinLease() const {
    constexpr std::chrono::seconds kMargin{20};
    EXPECT_LT(std::chrono::steady_clock::now() - lost_, kLease + kMargin);
  }
  static std::vector<std::string> Lease() {
    return {"--lease_seconds", std::to_string(kLease.count())};
  }

 private:
  std::chrono::steady_clock::time_point lost_;
};

class SshTrainLossOfThreeTest : public SshTrainLossTest {
 protected:
  SshTrainLossOfThreeTest() { options_.count = 3; }
};

TEST_F(SshTrainLossTest, AKilledRankIsTheVerdictAndNotTheOneThatMissesIt) {
  const auto dsrun = Start();
  OnHost(1, "kill -9 $(pgrep -x dsrank)");
  ExpectVerdict(dsrun->Wait(), 128 + SIGKILL, "signal", "h1");
  EXPECT_EQ(JobVerdict()["rank"], 1);
  ExpectNothingLeftOn({0, 1});
}

TEST_F(SshTrainLossTest, AStoppedRankIsTheVerdictAndNotTheOneThatWaitsForIt) {
  const auto dsrun = Start(Lease());
  NoteLoss();
  OnHost(1, "kill -STOP $(pgrep -x dsrank)");
  ExpectVerdict(dsrun->Wait(), 5, "stall", "h1");
  ExpectVerdictWithinLease();
  EXPECT_EQ(JobVerdict()["rank"], 1);
  ExpectNothingLeftOn({0, 1});
}

// Before its lease is over, by those who wait for it.
TEST_F(SshTrainLossTest, ARankMissingInACollectiveIsTheVerdict) {
  const auto dsrun = Start({"--collective_timeout", "8"});
  OnHost(1, "kill -STOP $(pgrep -x dsrank)");
  ExpectVerdict(dsrun->Wait(), 5, "stall", "h1");
  EXPECT_EQ(JobVerdict()["rank"], 1);
  EXPECT_THAT(JobVerdict()["message"].get<std::string>(),
              HasSubstr("rank 1 (host h1) did not arrive within 8 s"));
  ExpectNothingLeftOn({0, 1});
}

TEST_F(SshTrainLossTest, AKilledDaemonIsTheVerdict) {
  for (const int slots : {1, 2}) {
    const auto dsrun = Start(Lease(), slots);
    OnHost(1, "kill -9 $(pgrep -x dsrund-.*)");
    NoteLoss();
    ExpectVerdict(dsrun->Wait(), 4, "daemon_lost", "h1");
    ExpectVerdictWithinLease();
    ExpectNothingLeftOn({0, 1});
  }
}

TEST_F(SshTrainLossTest, APulledCableIsTheVerdictWithinTheLease) {
  for (const int slots : {1, 2}) {
    const auto dsrun = Start(Lease(), slots);
    NoteLoss();
    hosts().CutLink(1);
    ExpectVerdict(dsrun->Wait(), 4, "host_lost", "h1");
    ExpectVerdictWithinLease();
    ExpectNothingLeftOn({0, 1});
    hosts().RestoreLink(1);
  }
}

// No reset, no link that is down: what is sent to the host and what it sends disappears.
TEST_F(SshTrainLossOfThreeTest, AHostWithoutPacketsIsTheVerdictWithinTheLease) {
  const auto dsrun = Start(Lease());
  NoteLoss();
  hosts().Isolate(2);
  ExpectVerdict(dsrun->Wait(), 4, "host_lost", "h2");
  ExpectVerdictWithinLease();
  ExpectNothingLeftOn({0, 1, 2});
}

// dsrun reaches both, they do not reach each other.
TEST_F(SshTrainLossTest, TwoHostsThatLoseEachOtherAreNamedWithinTheLease) {
  const auto dsrun = Start(Lease());
  NoteLoss();
  hosts().Separate(0, 1);
  const ProgramResult result = dsrun->Wait();
  ExpectVerdictWithinLease();
  const int rank = JobVerdict()["rank"];
  ExpectVerdict(result, 4, "network", hosts().name(rank));
  const std::string there = std::to_string(rank), here = std::to_string(1 - rank);
  EXPECT_THAT(JobVerdict()["message"].get<std::string>(),
              HasSubstr("hosts h" + here + " and h" + there + " do not reach each other: rank " +
                        there + " (host h" + there + ") is "));
  ExpectNothingLeftOn({0, 1});
}

// dsrun and the daemons notice nothing: they talk over the first network.
TEST_F(SshTrainLossTest, ALostRailIsNamedWithinTheLease) {
  hosts().AddNetwork();
  std::vector<std::string> flags = Lease();
  flags.insert(flags.end(), {"--interface", "eth0,eth1"});
  const auto dsrun = Start(flags);
  NoteLoss();
  hosts().CutSecondLink(1);
  const ProgramResult result = dsrun->Wait();
  ExpectVerdictWithinLease();
  const int rank = JobVerdict()["rank"];
  ExpectVerdict(result, 4, "network", hosts().name(rank));
  EXPECT_THAT(JobVerdict()["message"].get<std::string>(), HasSubstr(" over eth1"));
  ExpectNothingLeftOn({0, 1});
}

// 50 ms each way, for everything: a step takes seconds and learns the same.
TEST_F(SshTrainLossTest, ASlowNetworkCostsTimeAndNothingElse) {
  WriteHostfile(1);
  for (const int stage : {1, 3}) {
    ASSERT_EQ(RunJob(OnThisHost(2, Train(stage, false, 3))).status, 0);
    const std::vector<double> losses = Losses();
    if (stage == 1) hosts().Slow(1, {.delay = std::chrono::milliseconds(50)});
    const ProgramResult slow = RunJob(OnHosts(Train(stage, false, 3), {"--lease_seconds", "5"}));
    ASSERT_EQ(slow.status, 0) << slow.err;
    EXPECT_THAT(Losses(), ElementsAreArray(losses)) << "stage " << stage;
    EXPECT_THAT(slow.err, Not(HasSubstr("does not respond")));
  }
}

}  // namespace
}  // namespace ds::testing
