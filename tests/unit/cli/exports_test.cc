#include "cli/plan/exports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

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

TEST(ExportsTest, APatternTakesWhatTheShellHas) {
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

}  // namespace
}  // namespace ds::cli
