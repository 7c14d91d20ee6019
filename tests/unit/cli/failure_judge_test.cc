#include "cli/job/verdict/failure_judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/unit/cli/events.h"

namespace ds::cli {
namespace {

using testing::Beacon;
using ::testing::ElementsAre;
using testing::Error;
using testing::Exited;
using ::testing::HasSubstr;
using testing::Started;

JobOutcome After(const std::vector<v1::Event>& events) {
  FailureJudge judge(3);
  for (const v1::Event& event : events) judge.OnEvent("a", event);
  return judge.Conclude();
}

TEST(FailureJudgeTest, NoneWhenEveryRankSucceeds) {
  EXPECT_TRUE(After({Exited(0, 0), Exited(1, 0)}).ok());
}

TEST(FailureJudgeTest, TheFirstThatFailedUnstoppedTakesTheBlame) {
  const JobOutcome outcome =
      After({Exited(2, 0, SIGTERM, true), Exited(1, 7), Exited(0, 9), Exited(3, 1, 0, true)});
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kExitCode);
  EXPECT_EQ(verdict.rank, 1);
  EXPECT_EQ(verdict.host, "a");
  EXPECT_EQ(verdict.exit_code, 7);
  EXPECT_EQ(verdict.signal, 0);
  EXPECT_EQ(verdict.generation, 3);
  EXPECT_EQ(verdict.message, "rank 1 on a ended with status 7");
  EXPECT_THAT(verdict.proof,
              HasSubstr("process 1001 exited with status 7; rank 0 on a failed, too"));
}

v1::Event Missed(int rank) {
  v1::Event event = Error(rank, "rank 1 (host h1) closed its connection");
  event.mutable_rank_report()->mutable_error()->set_code(
      static_cast<std::int64_t>(StatusCode::kUnavailable));
  return event;
}

// The rank that waited for one that was killed ends first, or is heard first.
TEST(FailureJudgeTest, ARankThatEndsBecauseOfAMissingPeerTakesNoBlameFromIt) {
  const v1::Event error = Missed(0);
  const JobOutcome killed = After({error, Exited(0, 1), Exited(1, 0, SIGKILL)});
  ASSERT_FALSE(killed.ok());
  EXPECT_EQ(killed.failure().rank, 1);
  EXPECT_EQ(killed.failure().signal, SIGKILL);
  // ... but keeps it when nothing else failed, and takes it back from nobody.
  EXPECT_EQ(After({error, Exited(0, 1), Exited(1, 0, SIGTERM, true)}).failure().rank, 0);
  EXPECT_EQ(After({Exited(1, 7), error, Exited(0, 1)}).failure().rank, 1);
}

// dsrun, or a daemon, stops it for the one that missed it before its end is seen.
TEST(FailureJudgeTest, AStopThatMeetsARankOnItsWayOutTakesNoBlameFromIt) {
  const v1::Event crashed = Exited(1, 0, SIGSEGV, /*stopping=*/true);
  EXPECT_EQ(After({Missed(0), Exited(0, 1), crashed}).failure().signal, SIGSEGV);
  EXPECT_EQ(After({crashed, Missed(0), Exited(0, 1)}).failure().signal, SIGSEGV);
  const JobOutcome told =
      After({Missed(0), Exited(0, 1), Error(1, "the loss is NaN"), Exited(1, 1, 0, true)});
  EXPECT_EQ(told.failure().message, "the loss is NaN");
  const JobOutcome stopped_after_it =
      After({Error(1, "the loss is NaN"), Missed(0), Exited(0, 1), Exited(1, 0, SIGTERM, true)});
  EXPECT_EQ(stopped_after_it.failure().message, "the loss is NaN");
  EXPECT_EQ(stopped_after_it.failure().exit_code, 1);
  EXPECT_EQ(stopped_after_it.failure().signal, 0);
  // A script that leaves with a status, which the others miss.
  v1::Event left;
  left.mutable_rank_report()->set_rank(1);
  left.mutable_rank_report()->mutable_end();
  const v1::Event exited = Exited(1, 5, 0, true);
  EXPECT_EQ(After({left, Missed(0), Exited(0, 1), exited}).failure().exit_code, 5);
  EXPECT_EQ(After({Missed(0), Exited(0, 1), left, exited}).failure().rank, 0) << "of the stop";
  // What a stop does to ranks is no reason, nor is another one that is missed, too.
  for (const v1::Event& stopped :
       {Exited(1, 0, SIGTERM, true), Exited(1, 0, SIGKILL, true), Exited(1, 1, 0, true)}) {
    EXPECT_EQ(After({Missed(0), Exited(0, 1), stopped}).failure().rank, 0);
    EXPECT_EQ(After({Missed(0), Exited(0, 1), Missed(1), stopped}).failure().rank, 0);
  }
  // A failure that needs no other reason keeps the blame.
  EXPECT_EQ(After({Exited(0, 7), crashed}).failure().rank, 0);
}

TEST(FailureJudgeTest, ALostHostComesBeforeTheRankThatMissedIt) {
  FailureJudge judge(0);
  judge.OnEvent("a", Missed(0));
  judge.OnEvent("a", Exited(0, 1));
  EXPECT_TRUE(judge.failed());
  judge.OnDaemonLost("b", "connection refused");
  EXPECT_EQ(judge.Conclude().failure().cause, Cause::kDaemonLost);
  EXPECT_EQ(judge.Conclude().failure().host, "b");
}

v1::Event MissedAlive(int rank, int missing, v1::RankError::Absence how) {
  v1::Event event = Missed(rank);
  event.mutable_rank_report()->mutable_error()->set_absence(how);
  event.mutable_rank_report()->mutable_error()->add_absent(static_cast<unsigned>(missing));
  return event;
}

// Rank 2, which heard of it from rank 0, ends first.
TEST(FailureJudgeTest, ALivingRankMissingInACollectiveIsAStall) {
  FailureJudge judge(0);
  judge.OnEvent("a", Started(0, 100));
  judge.OnEvent("b", Started(1, 101));
  judge.OnEvent("b", Beacon(1, 7));
  judge.OnEvent("b", Missed(2));
  judge.OnEvent("b", Exited(2, 1));
  judge.OnEvent("a", MissedAlive(0, 1, v1::RankError::LATE));
  judge.OnEvent("a", Exited(0, 1, 0, /*stopping=*/true));
  judge.OnEvent("b", Exited(1, 0, SIGTERM, /*stopping=*/true));
  const Verdict verdict = judge.Conclude().failure();
  EXPECT_EQ(verdict.cause, Cause::kStall);
  EXPECT_EQ(verdict.exit_code, 5);
  EXPECT_EQ(verdict.rank, 1);
  EXPECT_EQ(verdict.host, "b");
  EXPECT_EQ(verdict.pid, 101);
  EXPECT_EQ(verdict.step, 7);
  EXPECT_EQ(verdict.proof, "rank 0 on a waited for it, and its process lives");
  EXPECT_THAT(verdict.hint, HasSubstr("--collective_timeout"));
}

TEST(FailureJudgeTest, HostsThatLoseOnlyEachOtherAreACauseOfTheirOwn) {
  FailureJudge judge(0);
  judge.OnEvent("a", Started(0, 100));
  judge.OnEvent("b", Started(1, 101));
  judge.OnEvent("a", MissedAlive(0, 1, v1::RankError::UNREACHABLE));
  judge.OnEvent("a", Exited(0, 1));
  judge.OnEvent("b", MissedAlive(1, 0, v1::RankError::UNREACHABLE));
  const Verdict verdict = judge.Conclude().failure();
  EXPECT_EQ(verdict.cause, Cause::kNetwork);
  EXPECT_EQ(verdict.exit_code, 4);
  EXPECT_EQ(verdict.host, "b");
  EXPECT_THAT(verdict.message, HasSubstr("hosts a and b do not reach each other: rank 1"));
  // ... unless dsrun has lost one of them, too.
  judge.OnHostLost("b", {});
  EXPECT_EQ(judge.Conclude().failure().cause, Cause::kHostLost);
}

// What a rank says of others is looked at before it is believed.
TEST(FailureJudgeTest, ATestimonyNamesARankOfTheJob) {
  const v1::Event plain = Missed(0);
  for (const int missing : {1, 7, -1}) {
    for (const auto how : {v1::RankError::NONE, v1::RankError::LATE}) {
      if (missing == 1 && how == v1::RankError::LATE) continue;
      // The first error of a rank that tells again is another one.
      EXPECT_EQ(After({plain, MissedAlive(0, missing, how), Exited(0, 1)}).failure().rank, 0);
    }
  }
  v1::Event nobody = MissedAlive(0, 1, v1::RankError::LATE);
  nobody.mutable_rank_report()->mutable_error()->clear_absent();
  EXPECT_EQ(After({plain, nobody, Exited(0, 1)}).failure().rank, 0);
}

TEST(FailureJudgeTest, AMissingRankThatFailedIsNotAStall) {
  const JobOutcome killed =
      After({MissedAlive(0, 1, v1::RankError::LATE), Exited(0, 1), Exited(1, 0, SIGKILL)});
  EXPECT_EQ(killed.failure().cause, Cause::kSignal);
}

v1::Event EndedBecause(v1::StopCause cause) {
  v1::Event event;
  event.mutable_generation_ended()->set_stop_cause(cause);
  return event;
}

TEST(FailureJudgeTest, ADaemonThatStoppedItsRanksForItselfIsTheReason) {
  const v1::Event stopped = Exited(0, 0, SIGTERM, true);
  const auto lease = After({stopped, EndedBecause(v1::STOP_LEASE_EXPIRED)});
  ASSERT_FALSE(lease.ok());
  EXPECT_EQ(lease.failure().cause, Cause::kHostLost);
  EXPECT_EQ(lease.failure().exit_code, 4);
  EXPECT_THAT(lease.failure().message, HasSubstr("received nothing from dsrun"));
  const auto signalled = After({stopped, EndedBecause(v1::STOP_DAEMON_SIGNALLED)});
  ASSERT_FALSE(signalled.ok());
  EXPECT_EQ(signalled.failure().cause, Cause::kDaemonLost);
  EXPECT_EQ(signalled.failure().message, "the daemon of host a was terminated");
  const auto failed = After({Exited(1, 7), stopped, EndedBecause(v1::STOP_RANK_FAILED)});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.failure().exit_code, 7);
}

TEST(FailureJudgeTest, ARefusedPortMeansThatOnlyTheDaemonIsGone) {
  FailureJudge judge(0);
  judge.OnHostLost("b", {.grade = HostGrade::kLost,
                         .evidence = "1 renewal of its lease failed: reset",
                         .probe = {{Reachability::kRefused, "10.0.0.2:1: Connection refused"}}});
  const JobOutcome outcome = judge.Conclude();
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kDaemonLost);
  EXPECT_EQ(verdict.proof,
            "1 renewal of its lease failed: reset; its port: 10.0.0.2:1: Connection refused");
}

TEST(FailureJudgeTest, AProbeAddsToTheVerdictOfItsHostOnly) {
  const auto lost = [](int host) {
    return HostChange{.host = host, .grade = HostGrade::kLost, .evidence = "no answer"};
  };
  FailureJudge judge(0);
  judge.OnHostLost("b", lost(1));
  EXPECT_EQ(judge.Conclude().failure().proof.find("its port"), std::string::npos);
  judge.OnHostLost("c", lost(2));
  HostChange probed = lost(2);
  probed.probe = {Reachability::kRefused, "10.0.0.3:1: Connection refused"};
  judge.OnHostLost("c", probed);
  EXPECT_EQ(judge.Conclude().failure().host, "b");
  EXPECT_EQ(judge.Conclude().failure().cause, Cause::kHostLost);
  probed.host = 1;
  judge.OnHostLost("b", probed);
  EXPECT_EQ(judge.Conclude().failure().cause, Cause::kDaemonLost);
}

TEST(FailureJudgeTest, AnOpenPortMeansThatTheHostIsThere) {
  FailureJudge judge(0);
  judge.OnHostLost("b", {.grade = HostGrade::kLost,
                         .probe = {{Reachability::kListening, "10.0.0.2:1 takes connections"}}});
  const JobOutcome outcome = judge.Conclude();
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kHostLost);
  EXPECT_THAT(verdict.hint, HasSubstr("the host answers but dsrund does not"));
}

TEST(FailureJudgeTest, ASignalBecomes128PlusItsNumber) {
  const JobOutcome outcome = After({Exited(0, 0, SIGKILL)});
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kSignal);
  EXPECT_EQ(verdict.exit_code, 137);
  EXPECT_EQ(verdict.signal, SIGKILL);
  EXPECT_EQ(verdict.message, "rank 0 on a was killed by signal 9 (SIGKILL)");
  EXPECT_THAT(verdict.hint, HasSubstr("out-of-memory killer"));
}

TEST(FailureJudgeTest, OutOfMemoryHasItsOwnCauseAndProof) {
  v1::Event event = Exited(0, 0, SIGKILL);
  event.mutable_rank_exited()->set_oom_killed(true);
  event.mutable_rank_exited()->set_max_rss_bytes(std::uint64_t{3} << 30);
  const JobOutcome outcome = After({event});
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kOutOfMemory);
  EXPECT_EQ(verdict.message, "rank 0 on a was killed by the kernel: out of memory");
  EXPECT_EQ(verdict.proof, "process 1000 was ended by signal 9 (SIGKILL), peak memory 3.00 GiB");
}

TEST(FailureJudgeTest, TheReportOfTheRankComesFirst) {
  const JobOutcome outcome = After({Beacon(1, 12), Error(1, "model: no config.json", "add one"),
                                    Error(0, "peer is gone"), Exited(1, 2), Exited(0, 1)});
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kConfig);
  EXPECT_EQ(verdict.message, "model: no config.json");
  EXPECT_EQ(verdict.hint, "add one");
  EXPECT_EQ(verdict.exit_code, 2);
  EXPECT_EQ(verdict.step, 12);
}

TEST(FailureJudgeTest, AReportedErrorIsClassedByItsStatus) {
  const v1::Event error = Error(0, "m");
  EXPECT_EQ(After({error, Exited(0, 2)}).failure().cause, Cause::kConfig);
  EXPECT_EQ(After({error, Exited(0, 6)}).failure().cause, Cause::kCheckpoint);
  EXPECT_EQ(After({error, Exited(0, 1)}).failure().cause, Cause::kRankError);
  EXPECT_EQ(After({error, Exited(0, 0, SIGSEGV)}).failure().cause, Cause::kSignal);
}

TEST(FailureJudgeTest, ReportsWithoutAStepAreNoSteps) {
  v1::Event beacon;
  beacon.mutable_rank_report()->mutable_beacon();
  v1::Event step;
  step.mutable_rank_report()->mutable_step();
  const JobOutcome outcome = After({beacon, step, Exited(0, 5)});
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_FALSE(verdict.step.has_value());
  EXPECT_EQ(verdict.message, "rank 0 on a ended with status 5");
}

TEST(FailureJudgeTest, AUserStopBlamesNoRank) {
  FailureJudge judge(0);
  judge.OnUserStop(SIGINT);
  judge.OnUserStop(SIGTERM);
  judge.OnEvent("a", Exited(0, 0, SIGTERM, true));
  judge.OnEvent("a", Exited(1, 1));  // died of its neighbour's end before the daemon's stop
  const JobOutcome outcome = judge.Conclude();
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kUserStop);
  EXPECT_EQ(verdict.rank, -1);
  EXPECT_EQ(verdict.signal, SIGINT);
  EXPECT_EQ(verdict.exit_code, 130);
}

TEST(FailureJudgeTest, AUserStopAfterAFailureChangesNothing) {
  FailureJudge judge(0);
  judge.OnEvent("a", Exited(0, 4));
  judge.OnUserStop(SIGINT);
  EXPECT_EQ(judge.Conclude().failure().exit_code, 4);
}

TEST(FailureJudgeTest, ALostDaemonIsALostHost) {
  FailureJudge judge(0);
  judge.OnDaemonLost("b", "connection reset");
  EXPECT_TRUE(judge.failed());
  const JobOutcome outcome = judge.Conclude();
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kDaemonLost);
  EXPECT_EQ(verdict.host, "b");
  EXPECT_EQ(verdict.exit_code, 4);
  EXPECT_EQ(verdict.proof, "connection reset");
}

TEST(FailureJudgeTest, OnlyTheFirstHostThatCouldNotLaunchIsNamed) {
  FailureJudge judge(2);
  judge.OnLaunchFailed("b", NotFoundError("prog: no such program"));
  judge.OnLaunchFailed("c", UnavailableError("connection refused"));
  const JobOutcome outcome = judge.Conclude();
  ASSERT_FALSE(outcome.ok());
  const Verdict& verdict = outcome.failure();
  EXPECT_EQ(verdict.cause, Cause::kLaunch);
  EXPECT_EQ(verdict.host, "b");
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_EQ(verdict.generation, 2);
  EXPECT_EQ(verdict.message, "host b could not start its ranks: prog: no such program");
}

TEST(VerdictTest, JsonHasExactlyTheDocumentedKeys) {
  const nlohmann::ordered_json json = ToJson(Verdict{});
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_THAT(keys,
              ElementsAre("cause", "rank", "host", "exit_code", "signal", "generation", "step",
                          "message", "proof", "last_lines", "hint", "pid", "evidence"));
  EXPECT_TRUE(json["rank"].is_null());
  EXPECT_TRUE(json["step"].is_null());
  EXPECT_TRUE(json["pid"].is_null());
  EXPECT_TRUE(json["evidence"].is_null());
}

}  // namespace
}  // namespace ds::cli
