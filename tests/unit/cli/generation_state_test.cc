// What one generation of ranks makes of the words of its daemons about starts and logs.

#include "cli/job/generation_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tests/unit/cli/events.h"
#include "tests/unit/cli/recording_observer.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using std::chrono_literals::operator""s;

constexpr int kGeneration = 2;

v1::Event StartFailed(int rank, StatusCode code, const std::string& message) {
  v1::Event event;
  event.mutable_start_failed()->set_rank(rank);
  event.mutable_start_failed()->set_code(static_cast<int>(code));
  event.mutable_start_failed()->set_message(message);
  return event;
}

v1::Event Starting(const std::vector<int>& ranks, double seconds) {
  v1::Event event;
  for (const int rank : ranks) {
    v1::StartingRank* const starting = event.mutable_heartbeat()->add_starting();
    starting->set_rank(rank);
    starting->set_doing("execve of /nfs/prog on nfs");
    starting->set_seconds(seconds);
  }
  return event;
}

// Two hosts, both launched. A rank that is stopped has 30 s, and a slow one is named after 10 s.
class GenerationStateTest : public ::testing::Test {
 protected:
  GenerationStateTest() {
    hosts_[1].answer->set_log_path("/home/u/.cache/dsrun/log/job");
    state_.Begin();
    for (const int host : {0, 1}) {
      state_.Handle(Answer<v1::LaunchResponse>{host, kGeneration, v1::LaunchResponse()}, 0s);
    }
    actions_.clear();
  }

  void Say(int host, const v1::Event& event) {
    const auto batch = std::make_shared<v1::EventBatch>();
    *batch->add_events() = event;
    state_.Handle(HostEvents{host, kGeneration, batch}, 1s);
  }
  void EndStream(int host, const Status& status) {
    state_.Handle(StreamEnd{host, kGeneration, status}, 1s);
  }
  GenerationState::Parts MakeParts() {
    return {.number = kGeneration,
            .job = &job_,
            .program = &program_,
            .hosts = &hosts_,
            .observer = &observer_,
            .stop = &stop_,
            .timeout = 10s,
            .actions = &actions_};
  }
  // Takes the grace periods of the stops to this host.
  std::vector<double> GracesOf(int host) const {
    std::vector<double> graces;
    for (const JobAction& action : actions_) {
      const auto* stop = std::get_if<v1::StopRequest>(&action.what);
      if (stop != nullptr && action.host == host) graces.push_back(stop->grace_seconds());
    }
    return graces;
  }

  const JobPlan job_{
      .job_id = "job",
      .flags = {.grace_seconds = 30},
      .world = PlanWorld({{.host = "a", .slots = {0}}, {.host = "b", .slots = {0, 1}}}),
      .master_addr = "m"};
  const RankProgram program_{.argv = {"prog"}};
  PreparedHosts hosts_{{.number = 0, .host = 0}, {.number = 1, .host = 1}};
  testing::RecordingObserver observer_;
  UserStop stop_;
  JobActions actions_;
  GenerationState state_{MakeParts()};
};

TEST_F(GenerationStateTest, ARankThatCannotBeStartedEndsAllAtOnceAndIsTheVerdict) {
  Say(1, StartFailed(2, StatusCode::kNotFound, "rank 2: prog: no such program"));
  EXPECT_THAT(GracesOf(0), ElementsAre(0));
  EXPECT_THAT(GracesOf(1), ElementsAre(0));
  Say(0, testing::Exited(0, 0, SIGKILL, true));
  for (const int host : {0, 1}) EndStream(host, OkStatus());
  ASSERT_TRUE(state_.ended());
  const Verdict verdict = state_.Conclude().failure();
  EXPECT_EQ(verdict.cause, Cause::kLaunch);
  EXPECT_EQ(verdict.host, "b");
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_EQ(verdict.generation, kGeneration);
  EXPECT_EQ(verdict.message, "host b could not start its ranks: rank 2: prog: no such program");
  EXPECT_EQ(verdict.proof, "error code of the start: not found");
}

TEST_F(GenerationStateTest, AStartThatFailsLaterIsNotBlamedButEndsTheGracePeriod) {
  Say(0, testing::Exited(0, 7));
  EXPECT_THAT(GracesOf(0), ElementsAre(30));
  Say(1, StartFailed(2, StatusCode::kFailedPrecondition, "rank 2: has not ended for 600 s"));
  EXPECT_THAT(GracesOf(0), ElementsAre(30, 0));
  for (const int host : {0, 1}) EndStream(host, OkStatus());
  EXPECT_EQ(state_.Conclude().failure().exit_code, 7);
}

TEST_F(GenerationStateTest, ASlowStartIsNamedOnce) {
  Say(1, Starting({1, 2}, 9.9));
  EXPECT_THAT(observer_.notices, IsEmpty());
  Say(1, Starting({1, 2}, 12.5));
  const std::string notice =
      "host b starts slowly: rank 1: execve of /nfs/prog on nfs for 12 s, and 1 other rank";
  EXPECT_THAT(observer_.notices, ElementsAre(notice));
  Say(1, Starting({2}, 15));
  Say(0, Starting({0}, 15));
  EXPECT_THAT(observer_.notices, ElementsAre(notice)) << "a file server serves all hosts";
  EXPECT_FALSE(state_.failed());
}

TEST_F(GenerationStateTest, AHostWhoseLaunchIsUnansweredIsStoppedToo) {
  GenerationState state(MakeParts());
  state.Begin();
  state.Handle(Answer<v1::LaunchResponse>{0, kGeneration, v1::LaunchResponse()}, 0s);
  const auto batch = std::make_shared<v1::EventBatch>();
  *batch->add_events() = testing::Exited(0, 7);
  state.Handle(HostEvents{0, kGeneration, batch}, 1s);
  EXPECT_THAT(GracesOf(1), ElementsAre(30)) << "the answer of its launch may be lost";
  state.Handle(Answer<v1::StopResponse>{1, kGeneration, NotFoundError("not launched")}, 1s);
  EXPECT_FALSE(state.next().has_value());
  state.Handle(Answer<v1::LaunchResponse>{1, kGeneration, v1::LaunchResponse()}, 2s);
  EXPECT_THAT(GracesOf(1), ElementsAre(30, 30)) << "it was launched after the stop";
}

TEST_F(GenerationStateTest, ASecondSignalKillsEvenAfterTheGrace) {
  stop_.OnSignal(SIGINT);
  state_.Handle(UserSignal{SIGINT}, 1s);
  stop_.OnSignal(SIGINT);
  state_.Handle(UserSignal{SIGINT}, 41s);
  EXPECT_THAT(GracesOf(0), ElementsAre(30, 0));
  EXPECT_THAT(GracesOf(1), ElementsAre(30, 0));
}

TEST_F(GenerationStateTest, AHostWhoseLaunchIsNotAnsweredInTimeIsStoppedToo) {
  GenerationState state(MakeParts());
  state.Begin();
  state.Handle(Answer<v1::LaunchResponse>{0, kGeneration, v1::LaunchResponse()}, 0s);
  state.Handle(Answer<v1::LaunchResponse>{1, kGeneration, UnavailableError("reset")}, 1s);
  EXPECT_THAT(GracesOf(0), ElementsAre(0));
  EXPECT_THAT(GracesOf(1), ElementsAre(0));
  EXPECT_THAT(state.lost(), ElementsAre(1));
}

// The agent is killed in the grace of a stop, and its successor knows the stop.
class TakenOverStopTest : public GenerationStateTest {
 protected:
  // Takes over from state_ at 21 s.
  void TakeOver() {
    v1::JobState kept;
    kept.set_generation(kGeneration);
    kept.mutable_moment()->set_generation(kGeneration);
    *kept.mutable_moment()->mutable_stop() = *state_.DescribeStop();
    next_.emplace(GenerationState::Parts{.number = kGeneration,
                                         .is_taken_over = true,
                                         .stop_in_progress = ReadStop(kept),
                                         .stop_cause = ReadStopCause(kept),
                                         .job = &job_,
                                         .program = &program_,
                                         .hosts = &hosts_,
                                         .observer = &observer_,
                                         .stop = &next_stop_,
                                         .timeout = 10s,
                                         .actions = &actions_});
    actions_.clear();
    next_->Begin();
    for (const int host : {0, 1}) {
      next_->Handle(Answer<v1::LaunchResponse>{host, kGeneration, AlreadyExistsError("before")},
                    21s);
    }
  }
  void EndStreams() {
    for (const int host : {0, 1}) next_->Handle(StreamEnd{host, kGeneration, OkStatus()}, 30s);
  }

  UserStop next_stop_;
  std::optional<GenerationState> next_;
};

TEST_F(TakenOverStopTest, AHostThatHearsLateHasItsFullGrace) {
  Say(0, testing::Exited(0, 7));  // at 1 s
  TakeOver();
  EXPECT_THAT(GracesOf(0), ElementsAre(30)) << "the daemon keeps the earlier end";
  EXPECT_THAT(GracesOf(1), ElementsAre(30)) << "it may not have heard of the stop";
  next_stop_.OnSignal(SIGINT);
  EXPECT_FALSE(next_stop_.is_to_blame()) << "the failure came first";
}

TEST_F(TakenOverStopTest, AGraceThatIsOverIsNotBegunAgain) {
  stop_.OnSignal(SIGINT);
  state_.Handle(UserSignal{SIGINT}, 1s);
  stop_.OnSignal(SIGINT);
  state_.Handle(UserSignal{SIGINT}, 2s);
  TakeOver();
  EXPECT_THAT(GracesOf(1), ElementsAre(0));
}

TEST_F(TakenOverStopTest, AKillAfterTheGraceIsNotForgotten) {
  stop_.OnSignal(SIGINT);
  state_.Handle(UserSignal{SIGINT}, 1s);
  TakeOver();
  next_stop_.OnSignal(SIGINT);
  next_->Handle(UserSignal{SIGINT}, 21s);
  EXPECT_THAT(GracesOf(1), ElementsAre(30));
  next_stop_.OnSignal(SIGINT);
  next_->Handle(UserSignal{SIGINT}, 41s);
  EXPECT_THAT(GracesOf(1), ElementsAre(30, 0));
}

// A host that was lost may be there for the successor.
TEST_F(TakenOverStopTest, ItsCauseIsNotForgotten) {
  state_.Handle(HostChange{.host = 1, .grade = HostGrade::kLost, .evidence = "no answer"}, 1s);
  TakeOver();
  const auto batch = std::make_shared<v1::EventBatch>();
  *batch->add_events() = testing::Exited(0, 0, SIGTERM, true);
  next_->Handle(HostEvents{0, kGeneration, batch}, 22s);
  EndStreams();
  EXPECT_EQ(next_->Conclude().failure().cause, Cause::kHostLost);
  EXPECT_EQ(next_->Conclude().failure().host, "b");
}

TEST_F(TakenOverStopTest, ConsequencesOfALossAreNotBlamed) {
  state_.Handle(HostChange{.host = 1, .grade = HostGrade::kLost, .evidence = "no answer"}, 1s);
  TakeOver();
  const auto batch = std::make_shared<v1::EventBatch>();
  *batch->add_events() = testing::Exited(0, 7);
  next_->Handle(HostEvents{0, kGeneration, batch}, 22s);
  EndStreams();
  EXPECT_EQ(next_->Conclude().failure().cause, Cause::kHostLost);
}

TEST_F(TakenOverStopTest, AHostThatHasNotEndedYetIsNoHint) {
  Say(0, testing::Exited(0, 7));
  EXPECT_EQ(state_.DescribeStop()->verdict().hint(), "");
}

TEST_F(TakenOverStopTest, WhatTheSuccessorHearsCountsMore) {
  Say(0, testing::Exited(0, 7));
  TakeOver();
  const auto batch = std::make_shared<v1::EventBatch>();
  *batch->add_events() = testing::Exited(0, 7);
  next_->Handle(HostEvents{0, kGeneration, batch}, 22s);
  EndStreams();
  EXPECT_EQ(next_->Conclude().failure().exit_code, 7);
  EXPECT_EQ(next_->Conclude().failure().pid, state_.Conclude().failure().pid);
}

TEST_F(GenerationStateTest, TheVerdictOfALostDaemonNamesItsLastMessages) {
  EndStream(1, UnavailableError("connection reset"));
  EndStream(0, OkStatus());
  const Verdict verdict = state_.Conclude().failure();
  EXPECT_EQ(verdict.cause, Cause::kDaemonLost);
  EXPECT_THAT(
      verdict.hint,
      HasSubstr("its daemon leaves its last messages there in /home/u/.cache/dsrun/log/job"));
}

}  // namespace
}  // namespace ds::cli
