#include "cli/plan/stored_exports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(StoredExportsTest, AreNamesAndPatternsAndSayWhichHadAValue) {
  EXPECT_THAT(StoreExports({"A=1", "B=", "HF_TOKEN=a=b", "NCCL_*", "HOME"}),
              ElementsAre("A=<redacted>", "B=<redacted>", "HF_TOKEN=<redacted>", "NCCL_*", "HOME"));
}

TEST(StoredExportsTest, AResumedJobTakesThoseWithoutAValueFromTheShell) {
  const auto exports =
      RenewExports({"LR", "NCCL_*", "SEED=<redacted>"}, {"SEED=7"}, {{"LR", "1e-3"}});
  ASSERT_TRUE(exports.ok()) << exports.status().message();
  EXPECT_THAT(exports->words, ElementsAre("LR", "NCCL_*"));
  EXPECT_THAT(exports->from_shell, ElementsAre("LR"));
  EXPECT_THAT(RenewExports({"A=<redacted>"}, {"A"}, {{"A", "1"}})->words, IsEmpty());
}

TEST(StoredExportsTest, AValueThatWasGivenIsNotReplacedByTheShells) {
  const Environment shell = {{"LR", "1e-3"}, {"SEED", "1"}};
  EXPECT_EQ(RenewExports({"LR=<redacted>", "SEED=<redacted>", "A=<redacted>"}, {"A=1"}, shell)
                .status()
                .message(),
            "the job was given LR, SEED by -x NAME=VALUE, and its job.json keeps no values: give "
            "-x LR=... -x SEED=... again, or -x LR -x SEED for this shell's");
}

TEST(StoredExportsTest, WhatTheShellHasNotIsNamed) {
  EXPECT_EQ(RenewExports({"LR", "SEED"}, {}, {{"SEED", "1"}}).status().message(),
            "the job takes LR from the shell by -x, and this one has it not: export it here, or "
            "give -x LR=...");
}

}  // namespace
}  // namespace ds::cli
