#include "cli/plan/stored_exports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(StoredExportsTest, AreNamesAndPatterns) {
  EXPECT_THAT(NameExports({"A=1", "B=", "HF_TOKEN=a=b", "NCCL_*", "HOME"}),
              ElementsAre("A", "B", "HF_TOKEN", "NCCL_*", "HOME"));
}

TEST(StoredExportsTest, HideTheirValuesHoweverTheyAreWritten) {
  EXPECT_THAT(HideExports({"dsrun", "-x", "A=1", "-xB=2", "--export=C=3", "--export", "D=", "-x",
                           "HOME", "prog"},
                          {"A=1", "B=2", "C=3", "D=", "HOME"}),
              ElementsAre("dsrun", "-x", "A=<redacted>", "-xB=<redacted>", "--export=C=<redacted>",
                          "--export", "D=<redacted>", "-x", "HOME", "prog"));
}

TEST(StoredExportsTest, LeaveAProgramsWordsAlone) {
  EXPECT_THAT(HideExports({"dsrun", "-x", "A=1", "prog", "A=1", "-x", "B=2", "-x"}, {"A=1"}),
              ElementsAre("dsrun", "-x", "A=<redacted>", "prog", "A=1", "-x", "B=2", "-x"));
}

TEST(StoredExportsTest, AResumedJobTakesThemFromTheShell) {
  const auto exports =
      RenewExports({"LR", "NCCL_*", "SEED", "OLD=1"}, {"SEED=7"}, {{"LR", "1e-3"}});
  ASSERT_TRUE(exports.ok()) << exports.status().message();
  EXPECT_THAT(exports->words, ElementsAre("LR", "NCCL_*", "OLD=1"));
  EXPECT_THAT(exports->from_shell, ElementsAre("LR"));
  EXPECT_THAT(RenewExports({}, {"A=1"}, {})->words, IsEmpty());
}

TEST(StoredExportsTest, WhatNobodyHasIsNamed) {
  EXPECT_EQ(RenewExports({"LR", "SEED", "A"}, {"A=1"}, {}).status().message(),
            "the job was given LR, SEED by -x, and its job.json keeps no values: export them in "
            "this shell, or give -x LR=... again");
  EXPECT_THAT(RenewExports({"LR"}, {}, {}).status().message(), HasSubstr("export it in"));
}

}  // namespace
}  // namespace ds::cli
