#include "cli/job/log_index.h"

#include <gtest/gtest.h>

#include "tests/support/program.h"

namespace ds::cli {
namespace {

constexpr std::int64_t kMilli = 1'000'000;

TEST(LogIndexTest, MapsOffsetsToTimes) {
  const ds::testing::TemporaryFolder folder;
  LogIndex index(folder.path());
  ASSERT_TRUE(index.Flush().ok());
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "index.jsonl"));
  ASSERT_TRUE(index.Add(3, false, 10, 5 * kMilli).ok());
  ASSERT_TRUE(index.Add(3, true, 7, 5 * kMilli).ok());
  ASSERT_TRUE(index.Add(3, false, 10, 6 * kMilli - 1).ok()) << "too soon for a row";
  ASSERT_TRUE(index.Add(3, false, 10, 6 * kMilli).ok());
  ASSERT_TRUE(index.Add(3, false, 10, kMilli).ok()) << "the clock was set back";
  ASSERT_TRUE(index.Flush().ok());
  EXPECT_EQ(*ReadFile(folder.path() / "index.jsonl"),
            R"({"unix_nanos":5000000,"rank":3,"stream":"out","offset":0})"
            "\n"
            R"({"unix_nanos":5000000,"rank":3,"stream":"err","offset":0})"
            "\n"
            R"({"unix_nanos":6000000,"rank":3,"stream":"out","offset":20})"
            "\n"
            R"({"unix_nanos":1000000,"rank":3,"stream":"out","offset":30})"
            "\n");
}

TEST(LogIndexTest, RowsDoNotPileUp) {
  const ds::testing::TemporaryFolder folder;
  LogIndex index(folder.path());
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(index.Add(0, false, 1, i * kMilli).ok());
  EXPECT_GT(std::filesystem::file_size(folder.path() / "index.jsonl"), 60'000U);
}

}  // namespace
}  // namespace ds::cli
