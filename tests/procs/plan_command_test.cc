// What `dsrun plan` shows of a hostfile.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class PlanCommandTest : public ::testing::Test {
 protected:
  ProgramResult Dsrun(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), DS_BIN_DIR "/dsrun");
    return RunProgram(arguments, {.working_directory = folder_.path()});
  }
  std::string Write(const std::string& name, const std::string& text) {
    EXPECT_TRUE(WriteFileAtomically(folder_.path() / name, text).ok());
    return (folder_.path() / name).string();
  }

  TemporaryFolder folder_;
};

TEST_F(PlanCommandTest, ShowsSpares) {
  const std::string hosts = Write("hosts", "a slots=2\nb slots=2 spare\nc slots=1 spare\n");
  const ProgramResult table = Dsrun({"-H", hosts, "plan", "--", "prog"});
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, StartsWith("2 ranks on 1 host,"));
  EXPECT_THAT(table.out, HasSubstr("\nspare, for a lost host with as many slots: b (2 slots)\n"
                                   "spare, for a lost host with as many slots: c (1 slot)\n"));
  EXPECT_THAT(Dsrun({"-H", hosts, "plan", "--json", "--", "prog"}).out,
              HasSubstr(R"("spares":[{"host":"b","slots":[0,1]},{"host":"c","slots":[0]}])"));
}

TEST_F(PlanCommandTest, ShowsWhatTheHostfileSaysOfAHost) {
  const std::string good =
      Write("good",
            "a slots=2 port=2222 user=me gpus=3,1\nb slots=1\nc slots=1 spare workdir=\"/c d\"\n");
  const ProgramResult table = Dsrun({"-H", good, "plan", "--", "x"});
  EXPECT_THAT(table.out, HasSubstr("  0  a  device 3\n"));
  EXPECT_THAT(table.out, HasSubstr("\na: gpus=3,1 port=2222 user=me\nc: workdir=/c d\n"));
  const ProgramResult json = Dsrun({"-H", good, "plan", "--json", "--", "x"});
  EXPECT_THAT(json.out,
              HasSubstr(R"({"host":"a","slots":[0,1],"gpus":"3,1","port":"2222","user":"me"})"));
  EXPECT_THAT(json.out, HasSubstr(R"({"host":"b","slots":[0]}])"));
  EXPECT_THAT(json.out, HasSubstr(R"("spares":[{"host":"c","slots":[0],"workdir":"/c d"}])"));
}

TEST_F(PlanCommandTest, ShowsWhereTheRanksMeet) {
  const std::string far = Write("far", "a slots=1 address=10.9.8.7\nb slots=1\n");
  EXPECT_THAT(Dsrun({"-H", far, "plan", "--", "x"}).out, HasSubstr("meeting at 10.9.8.7\n"));
  EXPECT_THAT(Dsrun({"-H", far, "--num_nodes", "1", "plan", "--", "x"}).out,
              HasSubstr("meeting at 127.0.0.1\n"));
  EXPECT_THAT(Dsrun({"-H", far, "-i", "b@a", "--master_addr", "m", "plan", "--", "x"}).out,
              HasSubstr("meeting at m\n"));
  const std::string named = Write("named", "me@a slots=1\nb slots=1\n");
  EXPECT_THAT(Dsrun({"-H", named, "plan", "--", "x"}).out, HasSubstr("meeting at a\n"));
}

}  // namespace
}  // namespace ds::testing
