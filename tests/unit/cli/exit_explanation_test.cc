#include "cli/job/verdict/exit_explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/unit/cli/events.h"

namespace ds::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

v1::RankExited Killed(int signal) { return testing::Exited(3, 0, signal).rank_exited(); }
v1::RankExited EndedWith(int status) { return testing::Exited(3, status).rank_exited(); }

TEST(ExitExplanationTest, TheMemoryGroupProvesTheOutOfMemoryKiller) {
  v1::RankExited exit = Killed(SIGKILL);
  exit.set_oom_killed(true);
  exit.set_max_rss_bytes(3 * kGiB);
  exit.mutable_oom()->set_group_readable(true);
  exit.mutable_oom()->set_group_kills(1);
  exit.mutable_oom()->set_group_limit_bytes(4 * kGiB);
  const ExitExplanation explanation = ExplainExit(exit);
  EXPECT_EQ(explanation.cause, Cause::kOutOfMemory);
  EXPECT_EQ(explanation.what, "was killed by the kernel: out of memory");
  EXPECT_EQ(explanation.proof,
            "process 1003 was ended by signal 9 (SIGKILL), peak memory 3.00 GiB of 4.00 GiB, its "
            "memory group counts 1 out-of-memory kill at a limit of 4.00 GiB");
}

TEST(ExitExplanationTest, TheKernelsLogProvesItToo) {
  v1::RankExited exit = Killed(SIGKILL);
  exit.set_oom_killed(true);
  exit.mutable_oom()->set_kernel_log("Out of memory: Killed process 1003 (python3)");
  EXPECT_THAT(ExplainExit(exit).proof,
              HasSubstr("from the kernel's log: Out of memory: Killed process 1003 (python3)"));
}

TEST(ExitExplanationTest, AKillWithoutAMarkCameFromOutside) {
  v1::RankExited exit = Killed(SIGKILL);
  exit.mutable_oom()->set_group_readable(true);
  const ExitExplanation explanation = ExplainExit(exit);
  EXPECT_EQ(explanation.cause, Cause::kSignal);
  EXPECT_THAT(explanation.proof, HasSubstr("no out-of-memory kill was counted or logged"));
  EXPECT_THAT(explanation.hint, HasSubstr("an administrator, or a kill"));
}

TEST(ExitExplanationTest, WhereNothingCanBeReadSizeIsAHintButNoProof) {
  v1::RankExited exit = Killed(SIGKILL);
  exit.set_max_rss_bytes(118 * kGiB);
  exit.set_host_memory_bytes(125 * kGiB);
  EXPECT_EQ(ExplainExit(exit).cause, Cause::kSignal);
  EXPECT_THAT(ExplainExit(exit).hint, HasSubstr("most likely the out-of-memory killer"));
  exit.set_max_rss_bytes(kGiB);
  EXPECT_THAT(ExplainExit(exit).hint, HasSubstr("the out-of-memory killer (see dmesg), a sched"));
}

TEST(ExitExplanationTest, DistinguishesFullSharedMemoryFromOtherBusErrors) {
  v1::RankExited exit = Killed(SIGBUS);
  EXPECT_THAT(ExplainExit(exit).hint, HasSubstr("df /dev/shm"));
  exit.mutable_shared_memory()->set_total_bytes(kGiB);
  exit.mutable_shared_memory()->set_free_bytes(kGiB / 2);
  exit.mutable_shared_memory()->set_lowest_free_bytes(4096);
  EXPECT_EQ(ExplainExit(exit).cause, Cause::kSharedMemoryFull);
  EXPECT_EQ(ExplainExit(exit).what, "was killed by signal 7 (SIGBUS): /dev/shm is full");
  EXPECT_THAT(ExplainExit(exit).proof, HasSubstr("/dev/shm has 512 MiB free of 1.00 GiB"));
  EXPECT_THAT(ExplainExit(exit).hint, HasSubstr("--shm-size"));
  exit.mutable_shared_memory()->set_lowest_free_bytes(kGiB / 2);
  EXPECT_EQ(ExplainExit(exit).cause, Cause::kSignal);
  EXPECT_THAT(ExplainExit(exit).hint, HasSubstr("/dev/shm has free space"));
}

TEST(ExitExplanationTest, AStatusReportsAnOutOfMemoryKillBelowTheRank) {
  v1::RankExited exit = EndedWith(1);
  exit.mutable_oom()->set_group_kills(2);
  const ExitExplanation explanation = ExplainExit(exit);
  EXPECT_EQ(explanation.cause, Cause::kExitCode);
  EXPECT_THAT(explanation.proof, HasSubstr("its memory group counts 2 out-of-memory kills"));
  EXPECT_THAT(explanation.hint, HasSubstr("perhaps a process it had started"));
}

TEST(ExitExplanationTest, StatusesOfShells) {
  EXPECT_EQ(ExplainExit(EndedWith(1)).hint, "");
  EXPECT_THAT(ExplainExit(EndedWith(127)).hint, HasSubstr("was not found"));
  EXPECT_THAT(ExplainExit(EndedWith(126)).hint, HasSubstr("may not be executed"));
  EXPECT_THAT(ExplainExit(EndedWith(139)).hint, HasSubstr("signal 11 (SIGSEGV)"));
  EXPECT_EQ(ExplainExit(EndedWith(255)).hint, "");
}

TEST(ExitExplanationTest, TheEvidenceIsInTheJson) {
  v1::RankExited exit = Killed(SIGBUS);
  exit.set_max_rss_bytes(5);
  exit.mutable_shared_memory()->set_total_bytes(9);
  Verdict verdict{.pid = 17, .evidence = MakeExitEvidence(exit)};
  const nlohmann::ordered_json json = ToJson(verdict);
  EXPECT_EQ(json["pid"], 17);
  EXPECT_EQ(json["evidence"]["max_rss_bytes"], 5);
  EXPECT_EQ(json["evidence"]["shared_memory_bytes"], 9);
  verdict.evidence->shared_memory_bytes.reset();
  EXPECT_TRUE(ToJson(verdict)["evidence"]["shared_memory_bytes"].is_null());
}

}  // namespace
}  // namespace ds::cli
