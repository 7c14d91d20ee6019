#include "cli/job/final_status.h"

#include <gtest/gtest.h>

namespace ds::cli {
namespace {

constexpr auto kDistinct = ExitCodes::kDistinct;

TEST(FinalStatusTest, ShellLeavesEveryStatusAsItIs) {
  for (const int status : {0, 3, 130, 243}) {
    EXPECT_EQ(FinalStatus(static_cast<ExitStatus>(status), ExitCodes::kShell), status);
    EXPECT_EQ(FinalStatus(Verdict{.exit_code = status}, ExitCodes::kShell), status);
  }
}

TEST(FinalStatusTest, DistinctSeparatesStatusesOfDsrunAndPrograms) {
  EXPECT_EQ(FinalStatus(kExitOk, kDistinct), 0);
  EXPECT_EQ(FinalStatus(kExitFailure, kDistinct), 241);
  EXPECT_EQ(FinalStatus(kExitCheckpoint, kDistinct), 246);
  EXPECT_EQ(FinalStatus({.cause = Cause::kExitCode, .rank = 0, .exit_code = 3}, kDistinct), 3);
  EXPECT_EQ(FinalStatus({.cause = Cause::kPreflight, .exit_code = 3}, kDistinct), 243);
  EXPECT_EQ(FinalStatus({.cause = Cause::kHostLost, .exit_code = 4}, kDistinct), 244);
  EXPECT_EQ(FinalStatus({.cause = Cause::kConfig, .rank = 0, .exit_code = 2}, kDistinct), 242);
  EXPECT_EQ(FinalStatus({.cause = Cause::kException, .rank = 0, .exit_code = 1}, kDistinct), 1);
}

TEST(FinalStatusTest, DistinctSeparatesAUserStopFromAForeignSignal) {
  EXPECT_EQ(FinalStatus({.cause = Cause::kUserStop, .exit_code = 143}, kDistinct), 247);
  EXPECT_EQ(FinalStatus({.cause = Cause::kSignal, .rank = 0, .exit_code = 143}, kDistinct), 143);
}

TEST(FinalStatusTest, MarksAProgramThatEndsWithAStatusOfDsrun) {
  for (const int status : {240, 243, 247}) {
    EXPECT_EQ(FinalStatus({.cause = Cause::kExitCode, .exit_code = status}, kDistinct), 240);
  }
  EXPECT_EQ(FinalStatus({.cause = Cause::kExitCode, .exit_code = 248}, kDistinct), 248);
}

}  // namespace
}  // namespace ds::cli
