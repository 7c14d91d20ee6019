#include "cli/job/job_machine.h"

#include <gtest/gtest.h>

#include <csignal>

namespace ds::cli {
namespace {

Verdict Failure(std::optional<std::int64_t> step, int exit_code = 7) {
  return {.cause = Cause::kExitCode, .rank = 1, .exit_code = exit_code, .step = step};
}

TEST(RestartPolicyTest, RestartsUntilTheBudgetIsUsed) {
  RestartPolicy policy(2);
  EXPECT_EQ(policy.Decide(Failure(1)).reason, "restart 1 of 2");
  EXPECT_EQ(policy.Decide(Failure(2)).reason, "restart 2 of 2");
  const RestartDecision decision = policy.Decide(Failure(3));
  EXPECT_FALSE(decision.restart);
  EXPECT_EQ(decision.reason, "all 2 restarts are used up");
}

TEST(RestartPolicyTest, WithoutABudgetNothingRestarts) {
  const RestartDecision decision = RestartPolicy(0).Decide(Failure(1));
  EXPECT_FALSE(decision.restart);
  EXPECT_EQ(decision.reason, "no restarts were asked for (--max_restarts)");
}

TEST(RestartPolicyTest, TheSameErrorAtTheSameStepTwiceStops) {
  RestartPolicy policy(10);
  EXPECT_TRUE(policy.Decide(Failure(5)).restart);
  EXPECT_TRUE(policy.Decide(Failure(5, 8)).restart) << "another error at the same step";
  EXPECT_TRUE(policy.Decide(Failure(6, 8)).restart) << "the same error, but it got further";
  const RestartDecision decision = policy.Decide(Failure(6, 8));
  EXPECT_FALSE(decision.restart);
  EXPECT_EQ(decision.reason, "the same error at step 6 twice");
}

TEST(RestartPolicyTest, ARankMayBeKilledTwiceInOneStep) {
  const auto ended_by = [](int signal) {
    return Verdict{.cause = Cause::kSignal, .rank = 1, .signal = signal, .step = 5};
  };
  RestartPolicy policy(10);
  EXPECT_TRUE(policy.Decide(ended_by(SIGKILL)).restart);
  EXPECT_TRUE(policy.Decide(ended_by(SIGKILL)).restart);
  EXPECT_TRUE(policy.Decide(ended_by(SIGSEGV)).restart);
  EXPECT_FALSE(policy.Decide(ended_by(SIGSEGV)).restart);
}

TEST(RestartPolicyTest, AProgramWithoutStepsMayFailAlike) {
  RestartPolicy policy(2);
  EXPECT_TRUE(policy.Decide(Failure(std::nullopt)).restart);
  EXPECT_TRUE(policy.Decide(Failure(std::nullopt)).restart);
}

TEST(RestartPolicyTest, WithoutItsHostsAJobIsNotRestarted) {
  RestartPolicy policy(3);
  const RestartDecision decision = policy.Decide(Failure(1), "host b is gone");
  EXPECT_FALSE(decision.restart);
  EXPECT_EQ(decision.reason, "host b is gone");
}

TEST(RestartPolicyTest, TheLossOfTwoHostsAtTheSameStepIsNotTheSameError) {
  RestartPolicy policy(3);
  const auto lost = [](const std::string& host) {
    return Verdict{.cause = Cause::kHostLost, .host = host, .step = 4};
  };
  EXPECT_TRUE(policy.Decide(lost("a")).restart);
  EXPECT_TRUE(policy.Decide(lost("b")).restart);
  EXPECT_FALSE(policy.Decide(lost("b")).restart);
}

TEST(RestartPolicyTest, SomeCausesAreHopeless) {
  for (const Cause cause : {Cause::kUserStop, Cause::kConfig, Cause::kCheckpoint, Cause::kPreflight,
                            Cause::kLaunch, Cause::kInternal}) {
    const RestartDecision decision = RestartPolicy(3).Decide({.cause = cause});
    EXPECT_FALSE(decision.restart) << CauseName(cause);
    EXPECT_FALSE(decision.reason.empty());
  }
}

TEST(RestartPolicyTest, ARunThatHadACheckpointDoesNotBeginAgain) {
  const RankProgram again{.begins_again = true};
  EXPECT_TRUE(CheckBeginning(again, "").ok()) << "it had none";
  EXPECT_TRUE(CheckBeginning({}, "step-20").ok()) << "it goes on from one";
  EXPECT_EQ(CheckBeginning(again, "runs/r/checkpoints/step-20").message(),
            "not restarted at step 0, because the run had a checkpoint: checkpoint "
            "runs/r/checkpoints/step-20 is gone; repair it and run 'dsrun resume', or allow a "
            "restart from step 0 with --restart_from_scratch");
  const Status damaged =
      CheckBeginning({.begins_again = true, .unusable = "step-9 is damaged"}, "step-20");
  EXPECT_EQ(damaged.code(), StatusCode::kDataLoss);
  EXPECT_NE(damaged.message().find("step-9 is damaged"), std::string::npos);
}

}  // namespace
}  // namespace ds::cli
