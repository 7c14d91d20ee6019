#include "cli/job/verdict/exit_explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "cli/job/verdict/failure_judge.h"
#include "tests/unit/cli/events.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using testing::Exited;

// As torch.distributed.elastic.multiprocessing.errors writes it.
constexpr char kFile[] = R"({"message": {"message": "ValueError: no such column\nat all",
  "extraInfo": {"py_callstack": "Traceback (most recent call last):\n  File \"t.py\", line 3\nValueError: no such column\nat all\n",
                "timestamp": "1763859600"}}})";

TEST(PythonErrorTest, AnExceptionAndItsTraceback) {
  const auto error = ParseErrorFile(kFile);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->message, "ValueError: no such column");
  EXPECT_THAT(error->traceback,
              ElementsAre("Traceback (most recent call last):", "  File \"t.py\", line 3",
                          "ValueError: no such column", "at all"));
}

TEST(PythonErrorTest, OtherFiles) {
  EXPECT_EQ(ParseErrorFile(R"({"message": "plain"})")->message, "plain");
  EXPECT_TRUE(
      ParseErrorFile(R"({"message": {"message": "m", "extraInfo": 3}})")->traceback.empty());
  for (const char* file : {"", "{", "[]", "{}", R"({"message": 3})", R"({"message": {}})",
                           R"({"message": {"message": 3}})", "\xff"}) {
    EXPECT_FALSE(ParseErrorFile(file).has_value()) << file;
  }
}

TEST(PythonErrorTest, ItIsTheCauseOfTheVerdict) {
  FailureJudge judge(0);
  v1::Event event = Exited(2, 1, 0);
  event.mutable_rank_exited()->set_error_file(kFile);
  judge.OnEvent("h", event);
  const Verdict verdict = judge.Conclude().failure();
  EXPECT_EQ(verdict.cause, Cause::kException);
  EXPECT_EQ(verdict.message, "rank 2 on h raised ValueError: no such column");
  EXPECT_EQ(verdict.exit_code, 1);
  EXPECT_EQ(verdict.last_lines.front(), "Traceback (most recent call last):");
}

// A program may go on behind an exception that it has handled.
TEST(PythonErrorTest, ASignalThatEndsTheRankIsTheCause) {
  FailureJudge judge(0);
  v1::Event event = Exited(2, 0, SIGKILL);
  event.mutable_rank_exited()->set_error_file(kFile);
  judge.OnEvent("h", event);
  EXPECT_EQ(judge.Conclude().failure().cause, Cause::kSignal);
}

}  // namespace
}  // namespace ds::cli
