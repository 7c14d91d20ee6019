#include "cli/job/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(UserProgramTest, OnlyPythonProgramsGetAnInterpreter) {
  EXPECT_THAT(MakeUserProgram({}, {"./prog", "a b", ""}).argv, ElementsAre("./prog", "a b", ""));
  EXPECT_THAT(MakeUserProgram({}, {"train.py", "-x"}).argv,
              ElementsAre("python3", "-u", "train.py", "-x"));
  EXPECT_THAT(MakeUserProgram({.python = "/py"}, {"d/train.py"}).argv,
              ElementsAre("/py", "-u", "d/train.py"));
  EXPECT_THAT(MakeUserProgram({.module = true}, {"pkg.train"}).argv,
              ElementsAre("python3", "-u", "-m", "pkg.train"));
  EXPECT_THAT(MakeUserProgram({.no_python = true}, {"train.py"}).argv, ElementsAre("train.py"));
  EXPECT_THAT(MakeUserProgram({}, {}).argv, IsEmpty());
}

TEST(UserProgramTest, OnlyAScriptIsAFileThatMustBeThere) {
  EXPECT_EQ(MakeUserProgram({}, {"d/train.py", "x.py"}).script, "d/train.py");
  EXPECT_EQ(MakeUserProgram({}, {"./prog", "x.py"}).script, "");
  EXPECT_EQ(MakeUserProgram({.module = true}, {"pkg.py"}).script, "");
  EXPECT_EQ(MakeUserProgram({.no_python = true}, {"train.py"}).script, "");
  EXPECT_EQ(MakeUserProgram({}, {}).script, "");
}

TEST(UserProgramTest, TheLocalRankFollowsTheProgram) {
  EXPECT_EQ(MakeUserProgram({}, {"train.py"}).local_rank_position, 0);
  EXPECT_EQ(MakeUserProgram({.pass_local_rank = true}, {"./prog", "x"}).local_rank_position, 1);
  EXPECT_EQ(MakeUserProgram({.pass_local_rank = true}, {"train.py"}).local_rank_position, 3);
  EXPECT_EQ(MakeUserProgram({.module = true, .pass_local_rank = true}, {"pkg"}).local_rank_position,
            4);
}

}  // namespace
}  // namespace ds::cli
