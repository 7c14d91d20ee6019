#include "cli/host/own_pauses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/job/verdict/make_verdict.h"

namespace ds::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(OwnPausesTest, ALongWaitIsAPauseAndReportsSleep) {
  OwnPauses pauses(seconds(20));
  pauses.BeginWait({seconds(100), seconds(50)});
  EXPECT_EQ(pauses.EndWait({seconds(112), seconds(51)}).length, seconds(12));
  const OwnPause found = pauses.FindLongest(seconds(113));
  EXPECT_EQ(found.length, seconds(12));
  EXPECT_EQ(found.asleep, seconds(11));
}

// Who asks may have his turn before the thread that waited.
TEST(OwnPausesTest, FindsARunningOne) {
  OwnPauses pauses(seconds(20));
  pauses.BeginWait({seconds(100), seconds(50)});
  EXPECT_EQ(pauses.FindLongest(seconds(109)).length, seconds(9));
}

TEST(OwnPausesTest, LaterShortWaitsDoNotHideItButTimeDoes) {
  OwnPauses pauses(seconds(20));
  pauses.BeginWait({seconds(100), seconds(50)});
  pauses.EndWait({seconds(112), seconds(62)});
  for (int i = 0; i < 20; ++i) {
    const milliseconds now(112'000 + i * 400);
    pauses.BeginWait({now, now});
    pauses.EndWait({now + milliseconds(375), now + milliseconds(375)});
  }
  EXPECT_EQ(pauses.FindLongest(seconds(120)).length, seconds(12));
  EXPECT_EQ(pauses.FindLongest(seconds(133)).length, milliseconds(375));
}

// Two of which each may be what hosts were lost by.
TEST(OwnPausesTest, AShorterOneIsThereWhenALongerOneIsForgotten) {
  OwnPauses pauses(seconds(20));
  pauses.BeginWait({seconds(100), seconds(100)});
  pauses.EndWait({seconds(112), seconds(112)});
  pauses.BeginWait({seconds(120), seconds(120)});
  pauses.EndWait({seconds(129), seconds(129)});
  EXPECT_EQ(pauses.FindLongest(seconds(132)).length, seconds(12));
  EXPECT_EQ(pauses.FindLongest(seconds(133)).length, seconds(9));
  EXPECT_EQ(pauses.FindLongest(seconds(150)).length, seconds(0));
}

TEST(SuspendedVerdictTest, BlamesNoHost) {
  const Verdict loss = MakeDaemonLostVerdict("h1", "Connection refused", 2);
  const Verdict stopped = MakeSuspendedVerdict({.length = seconds(12)}, loss);
  EXPECT_EQ(stopped.cause, Cause::kSuspended);
  EXPECT_EQ(stopped.host, "");
  EXPECT_EQ(stopped.exit_code, 4);
  EXPECT_EQ(stopped.generation, 2);
  EXPECT_EQ(
      stopped.message,
      "dsrun itself was suspended for 12.0 s; the leases of its hosts ran out, and they ended "
      "their ranks");
  EXPECT_EQ(
      stopped.proof,
      "its process did not run, and its machine was awake; then: the daemon of host h1 is gone");
  const Verdict slept = MakeSuspendedVerdict({.length = seconds(12), .asleep = seconds(11)}, loss);
  EXPECT_EQ(slept.proof, "its machine slept for 11.0 s; then: the daemon of host h1 is gone");
}

TEST(SuspendedVerdictTest, ARankThatFailedMeanwhileKeepsTheBlame) {
  Verdict verdict{.cause = Cause::kExitCode, .rank = 1, .host = "h1", .hint = "see its log"};
  AddSuspension({.length = seconds(12)}, &verdict);
  EXPECT_EQ(verdict.cause, Cause::kExitCode);
  EXPECT_EQ(verdict.hint,
            "see its log; dsrun itself was suspended for 12.0 s meanwhile: other hosts may have "
            "ended their ranks before, with their leases");
}

}  // namespace
}  // namespace ds::cli
