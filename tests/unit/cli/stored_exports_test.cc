#include "cli/launch/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(StoredExportsTest, AreNamesAndPatternsAndSayWhichHadAValue) {
  const StoredExports stored = StoreExports({"A=1", "B=", "HF_TOKEN=a=b", "NCCL_*", "HOME"});
  EXPECT_THAT(stored.words, ElementsAre("A", "B", "HF_TOKEN", "NCCL_*", "HOME"));
  EXPECT_THAT(*stored.had_values, ElementsAre("A", "B", "HF_TOKEN"));
  EXPECT_THAT(*StoreExports({"HOME"}).had_values, IsEmpty());
}

TEST(StoredExportsTest, AResumedJobTakesThoseWithoutAValueFromTheShell) {
  const StoredExports stored = StoreExports({"LR", "NCCL_*", "SEED=3"});
  const auto exports = RenewExports(stored, {"SEED=7"}, {{"LR", "1e-3"}});
  ASSERT_TRUE(exports.ok()) << exports.status().message();
  EXPECT_THAT(exports->words, ElementsAre("LR", "NCCL_*"));
  EXPECT_THAT(exports->from_shell, ElementsAre("LR"));
  EXPECT_FALSE(exports->may_have_had_values);
  EXPECT_THAT(RenewExports(StoreExports({"A=1"}), {"A"}, {{"A", "1"}})->words, IsEmpty());
}

TEST(StoredExportsTest, AValueThatWasGivenIsNotReplacedByTheShells) {
  const Environment shell = {{"LR", "1e-3"}, {"SEED", "1"}};
  const std::string lost =
      "the job was given LR, SEED by -x NAME=VALUE, and its job.json keeps no values: give "
      "-x LR=... -x SEED=... again, or -x LR -x SEED for this shell's";
  EXPECT_EQ(
      RenewExports(StoreExports({"LR=1", "SEED=2", "A=3"}), {"A=1"}, shell).status().message(),
      lost);
  // As versions before wrote it.
  EXPECT_EQ(
      RenewExports({.words = {"LR=<redacted>", "SEED=<redacted>"}, .had_values = std::nullopt}, {},
                   shell)
          .status()
          .message(),
      lost);
}

TEST(StoredExportsTest, WarnsAboutAFileWithoutRecordedValues) {
  const Environment shell = {{"LR", "1e-3"}};
  const auto exports =
      RenewExports({.words = {"LR", "NCCL_*"}, .had_values = std::nullopt}, {}, shell);
  ASSERT_TRUE(exports.ok()) << exports.status().message();
  EXPECT_THAT(exports->from_shell, ElementsAre("LR"));
  EXPECT_TRUE(exports->may_have_had_values);
  EXPECT_FALSE(RenewExports({.words = {"NCCL_*"}, .had_values = std::nullopt}, {}, shell)
                   ->may_have_had_values);
}

TEST(StoredExportsTest, NamesVariablesMissingInTheShell) {
  EXPECT_EQ(RenewExports(StoreExports({"LR", "SEED"}), {}, {{"SEED", "1"}}).status().message(),
            "the job takes LR from the shell by -x, and this shell does not have it: export it "
            "here, or give -x LR=...");
}

}  // namespace
}  // namespace ds::cli
