#include "cli/launch/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/program.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

const Environment kShell = {{"NCCL_DEBUG", "INFO"}, {"NCCL_IB_HCA", "mlx5"}, {"HOME", "/root"},
                            {"EMPTY", ""},          {"PYTHONPATH", "/lib"},  {"UCX_TLS", "all"}};

TEST(ExportsTest, AValueIsTakenAsWritten) {
  EXPECT_THAT(*ResolveExports({.words = {"A=1", "B=", "C=a=b $HOME\xFF"}}, kShell),
              ElementsAre(Pair("A", "1"), Pair("B", ""), Pair("C", "a=b $HOME\xFF")));
}

TEST(ExportsTest, ANameTakesTheShellsValue) {
  EXPECT_THAT(*ResolveExports({.words = {"HOME", "EMPTY"}}, kShell),
              ElementsAre(Pair("HOME", "/root"), Pair("EMPTY", "")));
}

TEST(ExportsTest, AnUnsetNameIsAnError) {
  EXPECT_EQ(
      ResolveExports({.words = {"NOPE"}}, kShell).status().message(),
      "-x NOPE: NOPE is not set in this shell; export it first or give its value: -x NOPE=...");
}

TEST(ExportsTest, APatternTakesVariablesOfTheShell) {
  EXPECT_THAT(*ResolveExports({.words = {"NCCL_*"}}, kShell),
              ElementsAre(Pair("NCCL_DEBUG", "INFO"), Pair("NCCL_IB_HCA", "mlx5")));
  EXPECT_THAT(*ResolveExports({.words = {"?OME", "[EU]*"}}, kShell),
              ElementsAre(Pair("HOME", "/root"), Pair("EMPTY", ""), Pair("UCX_TLS", "all")));
  EXPECT_THAT(*ResolveExports({.words = {"GLOO_*"}}, kShell), IsEmpty());
}

TEST(ExportsTest, LaterOnesWin) {
  EXPECT_THAT(*ResolveExports({.files = {{{"A", "home"}, {"B", "home"}}, {{"B", "here"}}},
                               .words = {"A=1", "NCCL_*", "NCCL_DEBUG=WARN"}},
                              kShell),
              ElementsAre(Pair("A", "1"), Pair("B", "here"), Pair("NCCL_DEBUG", "WARN"),
                          Pair("NCCL_IB_HCA", "mlx5")));
}

TEST(RankVariableTest, ExportedElseInherited) {
  const Environment shell = {{"NAME", "inherited"}};
  EXPECT_EQ(*FindRankVariable({}, shell, "NAME"), "inherited");
  const Environment exports = {{"NAME", ""}};
  EXPECT_EQ(*FindRankVariable(exports, shell, "NAME"), "");
  EXPECT_EQ(FindRankVariable({{"OTHER", "x"}}, {}, "NAME"), nullptr);
}

TEST(RemoteExportsTest, ByPrefixWithTheWorkingDirectoryOnThePythonPath) {
  EXPECT_THAT(PickRemoteExports(kShell, "/work"),
              UnorderedElementsAre(Pair("NCCL_DEBUG", "INFO"), Pair("NCCL_IB_HCA", "mlx5"),
                                   Pair("PYTHONPATH", "/work:/lib"), Pair("UCX_TLS", "all")));
  EXPECT_THAT(PickRemoteExports({}, "/work"), ElementsAre(Pair("PYTHONPATH", "/work")));
}

TEST(RemoteExportsTest, NetworkDevicesStayInAnAiscJob) {
  EXPECT_THAT(PickRemoteExports({{"AISC_JOB_NAME", "x"},
                                 {"NCCL_IB_HCA", "a"},
                                 {"UCX_NET_DEVICES", "b"},
                                 {"NCCL_IB_HCA_2", "c"}},
                                "/"),
              UnorderedElementsAre(Pair("NCCL_IB_HCA_2", "c"), Pair("PYTHONPATH", "/")));
}

class GatheredExportsTest : public ::testing::Test {
 protected:
  GatheredExports Gather(const std::string& text, std::vector<std::string> words = {}) {
    std::ofstream(file_) << text;
    return GatherExports({.exports = std::move(words), .env_files = {file_}}, {}, folder_.path())
        .value();
  }
  ds::testing::TemporaryFolder folder_;
  const std::string file_ = (folder_.path() / "job.env").string();
};

TEST_F(GatheredExportsTest, ReportsAnUnexpandedDollar) {
  EXPECT_THAT(Gather("LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/opt\nA=${B}\nPRICE=5$\nC=$(pwd)\n").notices,
              ElementsAre(file_ + ": the $ in LD_LIBRARY_PATH, A stays as it is written: env files "
                                  "expand nothing"));
  EXPECT_THAT(Gather("A=1\n").notices, IsEmpty());
}

TEST_F(GatheredExportsTest, ReportsDsrunsOwnVariables) {
  EXPECT_THAT(Gather("RANK=3\nMASTER_PORT=12802\nNCCL_DEBUG=INFO\n").notices,
              ElementsAre(file_ + ": RANK, MASTER_PORT have no effect: dsrun sets them for each "
                                  "rank"));
}

TEST_F(GatheredExportsTest, WhereAForeignPathIsFromIsKnown) {
  EXPECT_EQ(Gather("A=1\n").path_source, "");
  EXPECT_EQ(Gather("PATH=/opt/conda/bin\n").path_source, file_);
  EXPECT_EQ(Gather("PATH=/opt/conda/bin\n", {"PATH=/x"}).path_source, "-x PATH");
}

TEST(ShownEnvironmentTest, MatchesTheEnvironmentOfRanks) {
  WorldPlan world = PlanWorld({{.host = "a", .slots = {0, 1}}});
  world.hosts[0].exports = {{"MASTER_PORT", "12802"}, {"RANK", "7"},
                            {"DSRUN_JOB_ID", "old"},  {"NCCL_DEBUG", "INFO"},
                            {"API_TOKEN", "hf_x"},    {"OMP_NUM_THREADS", ""}};
  Environment shown = ShowRankEnvironment(world, world.ranks[1], {.master_addr = "m"});
  EXPECT_EQ(*FindVariable(shown, "RANK"), "1");
  EXPECT_EQ(*FindVariable(shown, "NCCL_DEBUG"), "INFO");
  EXPECT_EQ(*FindVariable(shown, "API_TOKEN"), "<redacted>");
  for (const char* unknown : {"MASTER_PORT", "DSRUN_JOB_ID", "OMP_NUM_THREADS"}) {
    EXPECT_EQ(FindVariable(shown, unknown), nullptr) << unknown;
  }
  shown = ShowRankEnvironment(world, world.ranks[1], {.master_addr = "m", .master_port = 29500});
  EXPECT_EQ(*FindVariable(shown, "MASTER_PORT"), "29500");
}

}  // namespace
}  // namespace ds::cli
