// Which hosts a job uses in place of those that cannot take part, at its start and at a restart.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/job/job_machine.h"
#include "tests/unit/cli/events.h"
#include "tests/unit/cli/recording_observer.h"

namespace ds::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""min;

// Hosts a and b, spares c and d. The test answers what the machine asks, as `hosts_` says.
class HostReplacementTest : public ::testing::Test, public Program {
 protected:
  StatusOr<RankProgram> ForGeneration(int) const override { return RankProgram{.argv = {"prog"}}; }

  struct FakeHost {
    bool is_down = false;
    bool refuses = false;
    std::string machine;
  };

  JobMachine& Machine() {
    JobPlan plan{.job_id = "job",
                 .flags = {.lease_seconds = 1, .max_restarts = max_restarts_, .grace_seconds = 0},
                 .world = PlanWorld({{.host = "a", .slots = {0}}, {.host = "b", .slots = {0}}}),
                 .master_addr = "m"};
    plan.flags.master_addr = master_addr_;
    plan.flags.hostfile = "hosts";
    for (const char* spare : {"c", "d"}) plan.spares.push_back({.host = spare, .slots = {0}});
    if (!has_spares_) plan.spares.clear();
    for (JobHost& host : plan.world.hosts) host.remote = true;
    for (JobHost& host : plan.spares) host.remote = true;
    JobMachine::Parts parts{.program = this,
                            .observer = &observer_,
                            .stop = &stop_,
                            .draw_key = [] { return std::string(); },
                            .find_own_pause =
                                [this](std::optional<int> number) {
                                  return number == paused_for_ ? pause_ : std::nullopt;
                                },
                            .unix_nanos = [] { return std::int64_t{0}; }};
    for (int i = 0; i < 2; ++i) {
      if (hosts_[i].is_down) {
        parts.absent.failures[i] = {.message = "host " + std::string(1, "ab"[i]) + ": no route"};
        parts.absent.table = {"1 of 2 hosts cannot be used:"};
      }
      places_[i] = i;
    }
    machine_.emplace(std::move(plan), std::move(parts));
    return *machine_;
  }

  void Begin() { Perform(Machine().Begin()); }
  void Feed(const JobInput& input) { Perform(machine_->Handle(input, now_)); }
  void Pass(std::chrono::nanoseconds time) {
    now_ += time;
    Feed(TimePassed());
  }

  void Perform(const JobActions& actions) {
    for (const JobAction& action : actions) {
      if (std::holds_alternative<v1::PrepareRequest>(action.what)) Prepare(action);
      if (std::holds_alternative<v1::LaunchRequest>(action.what)) {
        launched_.push_back(places_.at(action.host));
        Feed(Answer<v1::LaunchResponse>{action.host, action.generation, v1::LaunchResponse()});
      }
      if (const auto* give_up = std::get_if<GiveHostUp>(&action.what)) {
        if (give_up->release) released_.push_back(action.host);
        given_up_.push_back(action.host);
        Feed(HostGone{action.host, lease_from_});
      }
      if (std::holds_alternative<AskProgram>(action.what)) {
        Feed(ProgramAnswer{action.generation, ForGeneration(action.generation)});
      }
      if (const auto* start = std::get_if<StartReplacement>(&action.what)) Start(*start);
    }
  }
  void Prepare(const JobAction& action) {
    const FakeHost& host = hosts_[places_.at(action.host)];
    v1::PrepareResponse response;
    response.set_machine(host.machine);
    if (host.refuses) {
      v1::Finding* const finding = response.add_findings();
      finding->set_level(v1::Finding::FAIL);
      finding->set_message("there is no /work");
    }
    Feed(Answer<v1::PrepareResponse>{action.host, action.generation, response});
  }
  void Start(const StartReplacement& start) {
    const Replacement& replacement = start.replacement;
    started_.push_back(replacement.host);
    started_at_.push_back(now_);
    places_[replacement.number] = replacement.host;
    StatusOr<StartedReplacement> answer = StartedReplacement{.master_addr = "m"};
    if (hosts_[replacement.host].is_down) answer = UnavailableError("no route to host");
    Feed(ReplacementAnswer{replacement.number, answer});
  }
  // The daemon of b is killed, and a's ranks are stopped.
  void KillDaemon() {
    Feed(StreamEnd{1, 0, UnavailableError("connection reset")});
    auto batch = std::make_shared<v1::EventBatch>();
    *batch->add_events() = testing::Ended();
    Feed(HostEvents{0, 0, batch});
    Feed(StreamEnd{0, 0, OkStatus()});
  }

  std::map<int, FakeHost> hosts_;  // by index for JobPlan::host
  std::map<int, int> places_;      // the same index, by the number of the daemon
  int max_restarts_ = 0;
  bool has_spares_ = true;
  std::string master_addr_;
  std::optional<std::chrono::nanoseconds> lease_from_;
  std::optional<OwnPause> pause_;  // that cost the lease of the daemon with the number below
  int paused_for_ = -1;
  testing::RecordingObserver observer_;
  UserStop stop_;
  std::optional<JobMachine> machine_;
  std::chrono::nanoseconds now_ = 1000s;
  std::vector<int> launched_, given_up_, released_, started_;
  std::vector<std::chrono::nanoseconds> started_at_;
};

TEST_F(HostReplacementTest, ASpareReplacesAHostThatCannotBeStarted) {
  hosts_[1].is_down = true;
  Begin();
  EXPECT_THAT(launched_, ElementsAre(0, 2));
  EXPECT_THAT(given_up_, IsEmpty());
  EXPECT_THAT(observer_.notices, ElementsAre("host b: no route; a spare host is to take its place",
                                             "spare host c replaces host b"));
}

TEST_F(HostReplacementTest, ASpareReplacesAHostThatRefusesTheJob) {
  hosts_[0].refuses = true;
  Begin();
  EXPECT_THAT(launched_, ElementsAre(2, 1));
  EXPECT_THAT(given_up_, ElementsAre(0));
  EXPECT_EQ(released_, given_up_);
  EXPECT_THAT(observer_.notices,
              ElementsAre("host a: there is no /work; a spare host is to take its place",
                          "spare host c replaces host a"));
}

TEST_F(HostReplacementTest, TheNextSpareIsTriedWhenOneCannotBeUsed) {
  hosts_[1].is_down = true;
  hosts_[2].refuses = true;
  Begin();
  EXPECT_THAT(launched_, ElementsAre(0, 3));
}

TEST_F(HostReplacementTest, WithoutAnotherSpareTheFirstFailureIsTheVerdict) {
  hosts_[1].refuses = true;
  hosts_[2].is_down = hosts_[3].is_down = true;
  Begin();
  ASSERT_TRUE(machine_->ended());
  EXPECT_THAT(launched_, IsEmpty());
  const Verdict verdict = machine_->outcome().failure();
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_EQ(verdict.message, "host b: there is no /work");
  EXPECT_THAT(observer_.notices, Contains("spare host d: no route to host"));
}

TEST_F(HostReplacementTest, HostsThatCannotBeStartedAreListedIfNoSpareCan) {
  hosts_[1].is_down = hosts_[2].is_down = hosts_[3].is_down = true;
  Begin();
  ASSERT_TRUE(machine_->ended());
  EXPECT_EQ(machine_->outcome().failure().message, "host b: no route");
  EXPECT_THAT(observer_.notices, Contains("1 of 2 hosts cannot be used:"));
}

TEST_F(HostReplacementTest, TooFewSparesAreNotStarted) {
  has_spares_ = false;
  hosts_[0].refuses = hosts_[1].refuses = true;
  Begin();
  ASSERT_TRUE(machine_->ended());
  EXPECT_THAT(started_, IsEmpty());
  EXPECT_EQ(observer_.notices.front(), "2 of 2 hosts refuse the job:");
}

TEST_F(HostReplacementTest, AHostThatMasterAddrNamesIsNotReplacedByAnother) {
  master_addr_ = "10.0.0.1";
  hosts_[0].refuses = true;
  Begin();
  ASSERT_TRUE(machine_->ended());
  EXPECT_THAT(started_, IsEmpty());
}

TEST_F(HostReplacementTest, TwoNamesOfOneMachineAreRefused) {
  hosts_[0].machine = hosts_[1].machine = "boot net:[1] pid:[1]";
  Begin();
  ASSERT_TRUE(machine_->ended());
  const Verdict verdict = machine_->outcome().failure();
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_THAT(verdict.message, HasSubstr("hosts a and b of hosts are one machine"));
  EXPECT_THAT(started_, IsEmpty()) << "no spare makes the hostfile right";
}

TEST_F(HostReplacementTest, MachinesThatAreUnknownOrDifferAreHostsOfTheirOwn) {
  hosts_[0].machine = "boot net:[1] pid:[1]";
  hosts_[1].machine = "boot net:[2] pid:[1]";
  Begin();
  EXPECT_THAT(launched_, ElementsAre(0, 1));
  launched_.clear();
  hosts_[0].machine = hosts_[1].machine = "";
  Begin();
  EXPECT_THAT(launched_, ElementsAre(0, 1));
}

TEST_F(HostReplacementTest, ASpareThatIsTheMachineOfAnotherHostIsNotUsed) {
  hosts_[0].machine = hosts_[2].machine = "boot net:[1] pid:[1]";
  hosts_[1].is_down = true;
  Begin();
  EXPECT_THAT(launched_, ElementsAre(0, 3));
}

TEST_F(HostReplacementTest, AKilledDaemonIsReplacedOnItsHostAfterTheFence) {
  has_spares_ = false;
  max_restarts_ = 1;
  lease_from_ = now_;
  Begin();
  launched_.clear();
  KillDaemon();
  EXPECT_THAT(started_, IsEmpty());
  EXPECT_THAT(observer_.notices, Contains(HasSubstr("ranks on b may still run")));
  while (started_.empty() && machine_->next().has_value()) Pass(*machine_->next() - now_);
  EXPECT_THAT(started_, ElementsAre(1));
  EXPECT_GT(started_at_[0], *lease_from_ + 1s);
  EXPECT_THAT(launched_, ElementsAre(0, 1));
  EXPECT_THAT(observer_.notices, Contains("a new daemon runs on host b"));
}

TEST_F(HostReplacementTest, AHostThatReboots) {
  has_spares_ = false;
  max_restarts_ = 1;
  Begin();
  hosts_[1].is_down = true;
  KillDaemon();
  Pass(5s);
  Pass(5s);
  EXPECT_THAT(started_, ElementsAre(1, 1, 1));
  EXPECT_THAT(observer_.notices, Contains(HasSubstr("no route to host; trying again")).Times(1));
  hosts_[1].is_down = false;
  hosts_[1].refuses = true;  // its file systems are not there yet
  Pass(5s);
  EXPECT_EQ(given_up_.back(), 5) << "the daemon of that attempt";
  EXPECT_THAT(released_, ElementsAre(5)) << "nobody knows what a lost one does";
  hosts_[1].refuses = false;
  launched_.clear();
  Pass(5s);
  EXPECT_THAT(launched_, ElementsAre(0, 1));
}

TEST_F(HostReplacementTest, AHostThatDoesNotComeBackEndsTheJobInTime) {
  has_spares_ = false;
  max_restarts_ = 1;
  Begin();
  hosts_[1].is_down = true;
  KillDaemon();
  for (int i = 0; i < 1000 && !machine_->ended(); ++i) Pass(5s);
  ASSERT_TRUE(machine_->ended());
  EXPECT_EQ(now_, 1000s + 5min);
  EXPECT_EQ(machine_->outcome().failure().cause, Cause::kDaemonLost);
  EXPECT_EQ(observer_.notices.back(), "not restarted: host b did not come back within 5 minutes");
  EXPECT_THAT(observer_.notices, Contains(HasSubstr("trying again")).Times(6)) << "each minute";
}

TEST_F(HostReplacementTest, TheUserEndsTheWaitForAHost) {
  has_spares_ = false;
  max_restarts_ = 1;
  Begin();
  hosts_[1].is_down = true;
  KillDaemon();
  stop_.OnSignal(SIGINT);
  Feed(UserSignal{SIGINT});
  ASSERT_TRUE(machine_->ended());
  EXPECT_EQ(machine_->outcome().failure().cause, Cause::kUserStop);
}

TEST_F(HostReplacementTest, ASpareIsPreferredToTheLostHost) {
  max_restarts_ = 1;
  Begin();
  KillDaemon();
  EXPECT_THAT(started_, ElementsAre(2));
  EXPECT_THAT(observer_.notices, Not(Contains(HasSubstr("trying again"))));
}

// Host a is lost in a pause of dsrun, and nobody needs it until host b is back.
TEST_F(HostReplacementTest, APauseIsBlamedForAHostWhoseLossMattersLater) {
  has_spares_ = false;
  max_restarts_ = 1;
  Begin();
  hosts_[1].is_down = true;
  KillDaemon();
  pause_ = OwnPause{.length = 9s};
  paused_for_ = 0;
  Feed(HostChange{.host = 0,
                  .grade = HostGrade::kLost,
                  .before = HostGrade::kLost,
                  .probe = ProbeResult{Reachability::kListening, "probed"}});
  hosts_[1].is_down = false;
  Pass(5s);
  ASSERT_TRUE(machine_->ended());
  EXPECT_EQ(machine_->outcome().failure().cause, Cause::kSuspended);
}

}  // namespace
}  // namespace ds::cli
