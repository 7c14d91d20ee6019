#include "cli/job/job_controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <memory>

#include "cli/job/job_moment.h"
#include "tests/unit/cli/events.h"
#include "tests/unit/cli/fake_daemon.h"

namespace ds::cli {
namespace {

using testing::Beacon;
using testing::Cut;
using ::testing::ElementsAre;
using testing::Ended;
using testing::Exited;
using testing::FakeDaemon;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Output;
using testing::RecordingObserver;
using std::chrono_literals::operator""s;

// Starts spares that are fakes, in the order of `daemons`.
class FakeStarter : public ReplacementStarter {
 public:
  struct Spare {
    std::string name;
    std::vector<int> slots;
    std::unique_ptr<FakeDaemon> daemon;  // null: it cannot be reached
  };

  StatusOr<StartedReplacement> StartReplacement(const Replacement& replacement) override {
    const int spare = replacement.host - host_count;
    if (spare < 0) {
      started.emplace_back("itself", replacement.node_rank);
      return StartedReplacement{.daemon = &back, .master_addr = "addr-of-itself"};
    }
    started.emplace_back(daemons[spare].name, replacement.node_rank);
    if (daemons[spare].daemon == nullptr) return UnavailableError("no route to it");
    return StartedReplacement{.daemon = daemons[spare].daemon.get(),
                              .master_addr = "addr-of-spare"};
  }

  std::vector<Spare> daemons;
  int host_count = 0;            // without spares
  FakeDaemon back{{{Ended()}}};  // on a lost host itself
  std::vector<std::pair<std::string, int>> started;
};

// Each generation's is given its number.
class NumberedProgram : public Program {
 public:
  StatusOr<RankProgram> ForGeneration(int generation) const override {
    if (!answer.ok()) return answer;
    return RankProgram{.argv = {"prog", std::to_string(generation)}};
  }

  Status answer;
};

class JobControllerTest : public ::testing::Test {
 protected:
  FakeDaemon* AddSpare(const std::string& name, std::vector<int> slots,
                       std::vector<std::vector<v1::Event>> scripts) {
    auto daemon = std::make_unique<FakeDaemon>(std::move(scripts));
    daemon->prepare_answer.set_core_count(4);
    daemon->prepare_answer.set_master_port(5353);
    starter_.daemons.push_back({name, std::move(slots), std::move(daemon)});
    return starter_.daemons.back().daemon.get();
  }

  void AddHost(const std::string& name, std::vector<std::vector<v1::Event>> scripts) {
    daemons_.push_back(std::make_unique<FakeDaemon>(std::move(scripts)));
    daemons_.back()->prepare_answer.set_core_count(4);
    daemons_.back()->prepare_answer.set_master_port(4242);
    hosts_.push_back({.host = name, .slots = {0, 1}});
  }
  JobController& Controller(int max_restarts = 0, double grace_seconds = 1) {
    JobPlan plan{.job_id = "job",
                 .flags = {.master_addr = named_master_addr_,
                           .max_restarts = max_restarts,
                           .grace_seconds = grace_seconds},
                 .world = PlanWorld(hosts_),
                 .master_addr = "m"};
    for (const auto& spare : starter_.daemons) {
      plan.spares.push_back({.host = spare.name, .slots = spare.slots, .remote = true});
    }
    starter_.host_count = static_cast<int>(hosts_.size());
    controller_ = std::make_unique<JobController>(
        std::move(plan), &program_, testing::ByNumber(daemons_), &observer_,
        JobController::Options{
            .spares = &starter_,
            .stop = &stop_,
            .keep_state =
                [this](const auto& state) {
                  if (state.has_value()) kept_ = *state;
                },
            .keep_moment = [this](const auto& moment) { *kept_.mutable_moment() = moment; }});
    return *controller_;
  }

  std::vector<std::unique_ptr<FakeDaemon>> daemons_;
  std::vector<HostSlots> hosts_;
  FakeStarter starter_;
  std::string named_master_addr_;  // by the user
  RecordingObserver observer_;
  NumberedProgram program_;
  UserStop stop_;
  std::unique_ptr<JobController> controller_;
  v1::JobState kept_;  // the last one
};

TEST_F(JobControllerTest, SucceedsWhenEveryRankOnEveryHostDoes) {
  AddHost("a", {{Output(0, "hello\n"), Exited(0, 0), Exited(1, 0), Ended()}});
  AddHost("b", {{Exited(2, 0), Exited(3, 0), Ended()}});
  EXPECT_TRUE(Controller().Run().ok());
  EXPECT_THAT(observer_.prepared, ElementsAre("a", "b"));
  EXPECT_EQ(observer_.output, "hello\n");
  EXPECT_TRUE(daemons_[0]->prepared.lease_master_port());
  EXPECT_FALSE(daemons_[1]->prepared.lease_master_port());
  EXPECT_TRUE(daemons_[0]->graces.empty());
}

// The next agent sends the same launches, which the daemons know already, and hears of the same
// ranks again.
TEST_F(JobControllerTest, AnotherControllerTakesOverTheGeneration) {
  AddHost("a", {{Exited(0, 1), Exited(1, 0), Ended()}, {Exited(0, 0), Exited(1, 0), Ended()}});
  AddHost("b", {{Exited(2, 0), Exited(3, 0), Ended()}, {Exited(2, 0), Exited(3, 0), Ended()}});
  EXPECT_TRUE(Controller(/*max_restarts=*/1).Run().ok());
  std::vector<v1::LaunchRequest> launched;
  for (const auto& daemon : daemons_) launched.push_back(daemon->launched.at(1));
  controller_.reset();
  daemons_.clear();
  hosts_.clear();
  AddHost("a", {{Exited(0, 1), Exited(1, 0), Ended()}});
  AddHost("b", {{Exited(2, 0), Exited(3, 0), Ended()}});
  for (const auto& daemon : daemons_) daemon->launch_answer = AlreadyExistsError("launched before");
  const JobOutcome outcome = Controller(/*max_restarts=*/1).Resume(kept_);
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.failure().cause, Cause::kExitCode);
  EXPECT_EQ(outcome.failure().generation, 1);
  EXPECT_EQ(observer_.notices.back(), "not restarted: all 1 restarts are used up");
  for (std::size_t i = 0; i < daemons_.size(); ++i) {
    ASSERT_EQ(daemons_[i]->launched.size(), 1u);
    EXPECT_EQ(daemons_[i]->launched[0].SerializeAsString(), launched[i].SerializeAsString());
    EXPECT_TRUE(daemons_[i]->watched_again);
  }
}

TEST_F(JobControllerTest, ASuccessorKnowsTheStopAndTheClocks) {
  AddHost("a", {{Exited(0, 7), Exited(1, 0, SIGTERM, true), Ended()}});
  AddHost("b", {{}});
  daemons_[1]->clock = HostClock::Offset{.lowest = 5s, .highest = 6s, .taken = 7s};
  EXPECT_FALSE(Controller(/*max_restarts=*/0, /*grace_seconds=*/1).Run().ok());
  const auto stop = ReadStop(kept_);
  ASSERT_TRUE(stop.has_value());
  EXPECT_EQ(stop->grace_seconds, 1);
  EXPECT_FALSE(stop->is_of_user);
  EXPECT_EQ(ReadStopCause(kept_).failure().exit_code, 7);
  ASSERT_EQ(kept_.moment().clocks_size(), 1);
  EXPECT_EQ(kept_.moment().clocks(0).number(), 1);
  EXPECT_EQ(ReadClock(kept_.moment().clocks(0)).highest, 6s);
}

v1::Event Put(const std::string& key, const std::string& value) {
  v1::Event event;
  event.mutable_rank_report()->mutable_put()->set_key(key);
  event.mutable_rank_report()->mutable_put()->set_value(value);
  return event;
}

TEST_F(JobControllerTest, ValuesOfARankReachTheOtherHosts) {
  AddHost("a", {{Put("ranks/0", "10.0.0.1"), Exited(0, 0), Ended()}});
  AddHost("b", {{Exited(2, 0), Ended()}});
  daemons_[1]->awaited_key = "ranks/0";
  EXPECT_TRUE(Controller().Run().ok());
}

TEST_F(JobControllerTest, EveryHostGetsTheSameRendezvous) {
  AddHost("a", {{Ended()}});
  AddHost("b", {{Ended()}});
  daemons_[1]->prepare_answer.set_master_port(1);
  EXPECT_TRUE(Controller().Run().ok());
  for (const auto& daemon : daemons_) {
    for (const v1::RankSpec& rank : daemon->launched.at(0).ranks()) {
      std::map<std::string, std::string> environment;
      for (const auto& each : rank.environment()) environment[each.name()] = each.value();
      EXPECT_EQ(environment["MASTER_ADDR"], "m");
      EXPECT_EQ(environment["MASTER_PORT"], "4242");
      EXPECT_EQ(environment["OMP_NUM_THREADS"], "2");
    }
  }
}

TEST_F(JobControllerTest, AFailureOnOneHostStopsAllOthers) {
  AddHost("a", {{}});
  AddHost("b", {{Exited(3, 7), Ended()}});
  const JobOutcome outcome = Controller().Run();
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.rank, 3);
  EXPECT_EQ(verdict.host, "b");
  EXPECT_EQ(verdict.exit_code, 7);
  EXPECT_THAT(daemons_[0]->graces, ElementsAre(1));
}

TEST_F(JobControllerTest, ALostDaemonStopsAllOthers) {
  AddHost("a", {{}});
  AddHost("b", {{Cut()}});
  const JobOutcome outcome = Controller().Run();
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kDaemonLost);
  EXPECT_EQ(verdict.host, "b");
  EXPECT_EQ(verdict.exit_code, 4);
  EXPECT_EQ(verdict.proof, "connection reset");
}

HostChange Lost(int host) {
  return {.host = host,
          .grade = HostGrade::kLost,
          .silence = std::chrono::seconds(30),
          .last_sign_unix_nanos = 1'700'000'000'000'000'000,
          .evidence = "5 renewals of its lease failed, the last: deadline exceeded",
          .probe = {{Reachability::kUnreachable, "10.0.0.2:1: No route to host"}}};
}

TEST_F(JobControllerTest, ALostHostEndsTheJobAndIsNotWaitedFor) {
  AddHost("a", {{Output(0, "running\n")}});
  AddHost("b", {{}});
  JobController& controller = Controller();
  std::jthread probe;
  observer_.on_output = [&] {
    HostChange lost = Lost(1);
    lost.probe.reset();
    controller.OnHostChange(lost);
    // The ranks of "a" may end before the probe.
    probe = std::jthread([&controller] {
      HostChange probed = Lost(1);
      probed.before = HostGrade::kLost;
      controller.OnHostChange(probed);
    });
  };
  const JobOutcome outcome = controller.Run();
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kHostLost);
  EXPECT_EQ(verdict.host, "b");
  EXPECT_EQ(verdict.exit_code, 4);
  EXPECT_EQ(verdict.message, "host b is lost: it sent nothing for 30.0 s");
  EXPECT_EQ(verdict.proof,
            "last message at 2023-11-14 22:13:20 UTC; 5 renewals of its lease failed, the last: "
            "deadline exceeded; its port: 10.0.0.2:1: No route to host");
  EXPECT_THAT(daemons_[0]->graces, ElementsAre(1));
  EXPECT_TRUE(daemons_[1]->abandoned);
  EXPECT_TRUE(daemons_[1]->graces.empty());
}

TEST_F(JobControllerTest, AHostThatIsLostBeforeTheLaunchStartsNothing) {
  AddHost("a", {{Ended()}});
  JobController& controller = Controller();
  HostChange suspect = Lost(0);
  suspect.grade = HostGrade::kSuspect;
  controller.OnHostChange(Lost(0));
  controller.OnHostChange(suspect);
  EXPECT_EQ(controller.Run().failure().cause, Cause::kHostLost);
  EXPECT_TRUE(daemons_[0]->launched.empty());
}

TEST_F(JobControllerTest, ASuspectHostIsAnnouncedAndNothingElse) {
  AddHost("a", {{Output(0, "running\n")}});
  JobController& controller = Controller();
  HostChange suspect = Lost(0);
  suspect.grade = HostGrade::kSuspect;
  HostChange alive = Lost(0);
  alive.grade = HostGrade::kAlive;
  alive.before = HostGrade::kSuspect;
  observer_.on_output = [&] {
    controller.OnHostChange(suspect);  // told in the order in which they come
    controller.OnHostChange(alive);
    controller.OnSignal(SIGINT);
  };
  EXPECT_EQ(controller.Run().failure().cause, Cause::kUserStop);
  ASSERT_GE(observer_.notices.size(), 2U);
  EXPECT_EQ(observer_.notices[0].find("host a does not respond; 5 renewals"), 0U);
  EXPECT_EQ(observer_.notices[1], "host a is responding again");
}

TEST_F(JobControllerTest, AStopThatDidNotGetThroughIsSentAgain) {
  AddHost("a", {{}});
  AddHost("b", {{Exited(3, 7), Ended()}});
  daemons_[0]->unanswered_stops = 2;
  daemons_[0]->stop_failure = InternalError("RST_STREAM");  // one of the ways it may show
  EXPECT_EQ(Controller().Run().failure().exit_code, 7);
  EXPECT_THAT(daemons_[0]->graces, ElementsAre(1));
}

TEST_F(JobControllerTest, AClockThatIsFarOffIsANotice) {
  AddHost("a", {{Ended()}});
  daemons_[0]->prepare_answer.set_unix_nanos(1'000'000'000);
  EXPECT_TRUE(Controller().Run().ok());
  ASSERT_EQ(observer_.notices.size(), 1U);
  EXPECT_EQ(observer_.notices[0].find("host a: its clock is "), 0U);
  EXPECT_NE(observer_.notices[0].find(" s behind; the times"), std::string::npos);
}

TEST_F(JobControllerTest, DifferentPythonsAreOneNotice) {
  AddHost("a", {{Ended()}});
  AddHost("b", {{Ended()}});
  daemons_[0]->prepare_answer.mutable_python()->set_version("3.11.2");
  daemons_[1]->prepare_answer.mutable_python()->set_version("3.12.1");
  EXPECT_TRUE(Controller().Run().ok());
  ASSERT_EQ(observer_.notices.size(), 1U);
  EXPECT_EQ(observer_.notices[0].find("the hosts differ: a has Python 3.11.2 without torch, b "),
            0U);
}

TEST_F(JobControllerTest, APythonThatDoesNotAnswerHasNoVersionToCompare) {
  AddHost("a", {{Ended()}});
  AddHost("b", {{Ended()}});
  daemons_[0]->prepare_answer.mutable_python()->set_version("3.11.2");
  daemons_[1]->prepare_answer.mutable_python()->set_problem("python3 was not found");
  EXPECT_TRUE(Controller().Run().ok());
  EXPECT_THAT(observer_.notices, IsEmpty());
}

TEST_F(JobControllerTest, ASecondSignalKillsAtOnce) {
  AddHost("a", {{Output(0, "running\n")}});
  JobController& controller = Controller(/*max_restarts=*/5, /*grace_seconds=*/60);
  observer_.on_output = [&] {
    controller.OnSignal(SIGINT);
    controller.OnSignal(SIGINT);
  };
  const JobOutcome outcome = controller.Run();
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kUserStop);
  EXPECT_EQ(verdict.exit_code, 130);
  EXPECT_THAT(daemons_[0]->graces, ElementsAre(60, 0));
  EXPECT_EQ(daemons_[0]->launched.size(), 1u) << "a stopped job does not restart";
}

TEST_F(JobControllerTest, SigusrReachesEveryHostAndStopsNothing) {
  AddHost("a", {{Output(0, "running\n"), Ended()}});
  AddHost("b", {{Ended()}});
  JobController& controller = Controller();
  controller.OnSignal(SIGUSR2);  // nobody to hear it yet
  observer_.on_output = [&] { controller.OnSignal(SIGUSR1); };
  EXPECT_TRUE(controller.Run().ok());
  EXPECT_THAT(daemons_[0]->signals, ElementsAre(SIGUSR1));
  EXPECT_THAT(daemons_[1]->signals, ElementsAre(SIGUSR1));
  EXPECT_THAT(observer_.notices, ElementsAre(HasSubstr("no rank was running")));
}

TEST_F(JobControllerTest, AHostThatRefusesEndsTheJobBeforeAnyRank) {
  AddHost("a", {{Ended()}});
  AddHost("b", {{Ended()}});
  v1::Finding* finding = daemons_[1]->prepare_answer.add_findings();
  finding->set_level(v1::Finding::FAIL);
  finding->set_name("dsrank");
  finding->set_message("no dsrank beside dsrund");
  finding->set_hint("install it");
  const JobOutcome outcome = Controller().Run();
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kPreflight);
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_EQ(verdict.message, "host b: no dsrank beside dsrund");
  EXPECT_EQ(verdict.hint, "install it");
  EXPECT_TRUE(daemons_[0]->launched.empty());
}

TEST_F(JobControllerTest, AllHostsThatRefuseAreNamed) {
  for (const char* host : {"a", "b", "c"}) AddHost(host, {{Ended()}});
  for (const int refusing : {0, 2}) {
    v1::Finding* finding = daemons_[refusing]->prepare_answer.add_findings();
    finding->set_level(v1::Finding::FAIL);
    finding->set_message("train.py: No such file or directory");
  }
  const JobOutcome outcome = Controller().Run();
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.message, "host a: train.py: No such file or directory");
  EXPECT_THAT(observer_.notices, ElementsAre("2 of 3 hosts refuse the job:",
                                             "  host a: train.py: No such file or directory",
                                             "  host c: train.py: No such file or directory"));
}

TEST_F(JobControllerTest, AHostThatCannotLaunchStopsTheOthers) {
  AddHost("a", {{}});
  AddHost("b", {{}});
  daemons_[1]->launch_answer = NotFoundError("prog: no such program");
  const JobOutcome outcome = Controller().Run();
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kLaunch);
  EXPECT_EQ(verdict.host, "b");
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_THAT(daemons_[0]->graces, ElementsAre(0));
}

TEST_F(JobControllerTest, ADaemonThatIsGoneAtTheLaunchIsALostOne) {
  for (const Status& answer :
       {UnavailableError("connection refused"), DeadlineExceededError("no answer in 30 s")}) {
    daemons_.clear();
    hosts_.clear();
    AddHost("a", {{}});
    AddHost("b", {{}});
    daemons_[1]->launch_answer = answer;
    const JobOutcome outcome = Controller().Run();
    ASSERT_FALSE(outcome.ok());
    const Verdict& verdict = outcome.failure();
    EXPECT_EQ(verdict.cause, Cause::kDaemonLost);
    EXPECT_EQ(verdict.host, "b");
    EXPECT_EQ(verdict.exit_code, 4);
    EXPECT_THAT(verdict.proof, HasSubstr("Launch ended with"));
    EXPECT_THAT(verdict.proof, HasSubstr(answer.message()));
    EXPECT_THAT(daemons_[0]->graces, ElementsAre(0));
  }
}

TEST_F(JobControllerTest, RestartsWithANewGenerationUntilItSucceeds) {
  const v1::Event step = Beacon(0, 4);
  AddHost("a", {{step, Exited(0, 7), Ended()}, {Exited(0, 0, SIGKILL), Ended()}, {Ended()}});
  EXPECT_TRUE(Controller(/*max_restarts=*/2).Run().ok());
  ASSERT_EQ(daemons_[0]->launched.size(), 3u);
  EXPECT_EQ(daemons_[0]->launched[2].generation(), 2u);
  EXPECT_EQ(daemons_[0]->launched[2].argv(1), "2");
  EXPECT_THAT(observer_.notices,
              ElementsAre("rank 0 on a ended with status 7; restart 1 of 2",
                          "rank 0 on a was killed by signal 9 (SIGKILL); restart 2 of 2"));
}

TEST_F(JobControllerTest, TheSameErrorAtTheSameStepTwiceIsNotTriedAgain) {
  const std::vector<v1::Event> script = {Beacon(0, 4), Exited(0, 7), Ended()};
  AddHost("a", {script, script, script});
  EXPECT_EQ(Controller(/*max_restarts=*/5).Run().failure().exit_code, 7);
  EXPECT_EQ(daemons_[0]->launched.size(), 2u);
  EXPECT_EQ(observer_.notices.back(), "not restarted: the same error at step 4 twice");
}

std::string VariableOf(const v1::LaunchRequest& launch, const std::string& name) {
  for (const auto& each : launch.ranks(0).environment()) {
    if (each.name() == name) return each.value();
  }
  return "";
}

TEST_F(JobControllerTest, ASpareReplacesALostHost) {
  AddHost("a", {{Output(0, "running\n")}, {Exited(0, 0), Exited(1, 0), Ended()}});
  AddHost("b", {{}});
  AddSpare("small", {0}, {});
  AddSpare("away", {0, 1}, {});
  starter_.daemons.back().daemon = nullptr;
  FakeDaemon* const spare = AddSpare("c", {2, 3}, {{Exited(2, 0), Exited(3, 0), Ended()}});
  JobController& controller = Controller(/*max_restarts=*/1);
  observer_.on_output = [&] { controller.OnHostChange(Lost(1)); };
  EXPECT_TRUE(controller.Run().ok());
  EXPECT_TRUE(daemons_[1]->abandoned);
  EXPECT_THAT(starter_.started, ElementsAre(std::pair("away", 1), std::pair("c", 1)));
  EXPECT_THAT(observer_.prepared, ElementsAre("a", "b", "c"));
  ASSERT_EQ(spare->launched.size(), 1u);
  EXPECT_EQ(spare->launched[0].generation(), 1u);
  EXPECT_EQ(spare->launched[0].ranks(0).rank(), 2u);
  EXPECT_EQ(VariableOf(spare->launched[0], "WORLD_SIZE"), "4");
  EXPECT_EQ(VariableOf(spare->launched[0], "MASTER_PORT"), "4242");
  EXPECT_EQ(VariableOf(daemons_[0]->launched[1], "MASTER_ADDR"), "addr-of-spare");
  EXPECT_THAT(observer_.notices,
              ElementsAre("host b is lost: it sent nothing for 30.0 s; restart 1 of 1",
                          "spare host away: no route to it", "spare host c replaces host b"));
}

TEST_F(JobControllerTest, ASpareInTheFirstPlaceIsWhereTheRanksMeet) {
  AddHost("a", {{Cut()}});
  AddHost("b", {{}, {Ended()}});
  FakeDaemon* const spare = AddSpare("c", {0, 1}, {{Ended()}});
  EXPECT_TRUE(Controller(/*max_restarts=*/1).Run().ok());
  EXPECT_TRUE(spare->prepared.lease_master_port());
  for (const v1::LaunchRequest& launch : {spare->launched.at(0), daemons_[1]->launched.at(1)}) {
    EXPECT_EQ(VariableOf(launch, "MASTER_ADDR"), "addr-of-spare");
    EXPECT_EQ(VariableOf(launch, "MASTER_PORT"), "5353");
  }
}

TEST_F(JobControllerTest, ALateWordAboutAReplacedHostIsNotAboutTheSpare) {
  AddHost("a", {{}, {Output(0, "again\n"), Ended()}});
  AddHost("b", {{Cut()}});
  AddSpare("c", {0, 1}, {{Ended()}});
  JobController& controller = Controller(/*max_restarts=*/1);
  observer_.on_output = [&] { controller.OnHostChange(Lost(1)); };
  EXPECT_TRUE(controller.Run().ok());
}

TEST_F(JobControllerTest, ALostSpareIsALostHost) {
  AddHost("a", {{}, {Output(0, "again\n")}});
  AddHost("b", {{Cut()}});
  FakeDaemon* const spare = AddSpare("c", {0, 1}, {{}});
  JobController& controller = Controller(/*max_restarts=*/1);
  observer_.on_output = [&] { controller.OnHostChange(Lost(2)); };
  const JobOutcome outcome = controller.Run();
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kHostLost);
  EXPECT_EQ(verdict.host, "c");
  EXPECT_TRUE(spare->abandoned);
}

TEST_F(JobControllerTest, AHostThatIsLostAfterARankHasFailedIsReplacedToo) {
  AddHost("a", {{Output(0, "x\n"), Exited(0, 7), Ended()}, {Ended()}});
  AddHost("b", {{}});
  AddSpare("c", {0, 1}, {{Ended()}});
  JobController& controller = Controller(/*max_restarts=*/1, /*grace_seconds=*/60);
  observer_.on_output = [&] { controller.OnHostChange(Lost(1)); };
  EXPECT_TRUE(controller.Run().ok());
  EXPECT_THAT(starter_.started, ElementsAre(std::pair("c", 1)));
}

TEST_F(JobControllerTest, WithoutASpareThatFitsALostHostIsUsedAgain) {
  AddHost("a", {{}, {Ended()}});
  AddHost("b", {{Cut()}});
  AddSpare("c", {0}, {});
  EXPECT_TRUE(Controller(/*max_restarts=*/1).Run().ok());
  EXPECT_THAT(starter_.started, ElementsAre(std::pair("itself", 1)));
  EXPECT_EQ(observer_.notices.back(), "a new daemon runs on host b");
  EXPECT_EQ(VariableOf(daemons_[0]->launched.at(1), "MASTER_ADDR"), "addr-of-itself");
  EXPECT_EQ(starter_.back.launched.at(0).ranks(0).rank(), 2U);
}

TEST_F(JobControllerTest, NoSpareReplacesAHostNamedByTheUser) {
  AddHost("a", {{Cut()}});
  AddSpare("c", {0, 1}, {});
  named_master_addr_ = "m";
  EXPECT_TRUE(Controller(/*max_restarts=*/1).Run().ok());
  EXPECT_THAT(starter_.started, ElementsAre(std::pair("itself", 0)));
}

TEST_F(JobControllerTest, ASpareThatRefusesIsNotUsed) {
  AddHost("a", {{}, {Ended()}});
  AddHost("b", {{Cut()}});
  FakeDaemon* const spare = AddSpare("c", {0, 1}, {});
  spare->lease_from = std::chrono::nanoseconds(1);
  v1::Finding* finding = spare->prepare_answer.add_findings();
  finding->set_level(v1::Finding::FAIL);
  finding->set_message("no dsrank beside dsrund");
  EXPECT_TRUE(Controller(/*max_restarts=*/1).Run().ok());
  EXPECT_THAT(starter_.started, ElementsAre(std::pair("c", 1), std::pair("itself", 1)));
  EXPECT_EQ(observer_.notices.at(1), "spare host c: no dsrank beside dsrund");
  EXPECT_TRUE(spare->launched.empty());
  EXPECT_TRUE(spare->released) << "its lease may be long";
  EXPECT_TRUE(spare->abandoned);
}

TEST_F(JobControllerTest, AnObserverThatCannotKeepUpItsFilesEndsTheJob) {
  AddHost("a", {{Output(0, "x\n"), Output(0, "y\n")}});
  observer_.output_answer = ResourceExhaustedError("log: No space left on device");
  const JobOutcome outcome = Controller().Run();
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kInternal);
  EXPECT_EQ(verdict.exit_code, 1);
  EXPECT_EQ(verdict.message, "log: No space left on device");
  EXPECT_EQ(observer_.output, "x\n") << "it is not asked again";
}

TEST_F(JobControllerTest, WithoutAUsableCheckpointNothingStarts) {
  AddHost("a", {{Ended()}});
  program_.answer = DataLossError("step-4 is damaged");
  const JobOutcome outcome = Controller().Run();
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kCheckpoint);
  EXPECT_EQ(verdict.exit_code, 6);
  EXPECT_TRUE(daemons_[0]->launched.empty());
}

}  // namespace
}  // namespace ds::cli
