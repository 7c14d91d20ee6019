#include "daemon/host/last_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "runtime/base/files.h"
#include "tests/support/program.h"

namespace ds::daemon {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

TEST(LastWordsTest, EveryLineHasItsTime) {
  LastWords words;
  words.Add("dsrund: on", 0);
  words.Add("e\ndsrund: two\n", 61);
  EXPECT_EQ(words.text(), "1970-01-01T00:00:00Z dsrund: one\n1970-01-01T00:01:01Z dsrund: two\n");
}

TEST(LastWordsTest, TheLatestLinesAreKept) {
  LastWords words;
  for (int i = 0; i < 20'000; ++i) words.Add("line " + std::to_string(i) + "\n", 0);
  EXPECT_LE(words.text().size(), LastWords::kMostBytes);
  EXPECT_GT(words.text().size(), LastWords::kMostBytes / 2);
  EXPECT_THAT(std::string(words.text()), StartsWith("1970-01-01T00:00:00Z line "));
  EXPECT_THAT(std::string(words.text()), EndsWith(" line 19999\n"));
}

TEST(LastWordsTest, OneEndlessLineIsBounded) {
  LastWords words;
  for (int i = 0; i < 10; ++i) words.Add(std::string(100'000, 'x'), 0);
  EXPECT_LE(words.text().size(), LastWords::kMostBytes);
}

TEST(LastWordsTest, LeavesAFileThatOnlyItsUserReads) {
  const ds::testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "log" / "job.host").string();
  LastWords words;
  words.Add("dsrund: cut", 0);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(words.Leave(path, "the end", 1).ok());
  EXPECT_EQ(*ReadFile(path), "1970-01-01T00:00:00Z dsrund: cut\n1970-01-01T00:00:01Z the end\n");
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_FALSE(words.Leave("/proc/none/x", "the end", 1).ok());
}

}  // namespace
}  // namespace ds::daemon
