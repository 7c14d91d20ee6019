#include "runtime/checkpoint/format/folder_mark.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/program.h"

namespace ds::checkpoint {
namespace {

using ds::testing::TemporaryFolder;
using std::chrono_literals::operator""h;

TEST(FolderMark, OfOneJobIsLeftAloneByTheNext) {
  const TemporaryFolder folder;
  const std::string first = MakeFolderMark(folder.path()).value();
  const std::string second = MakeFolderMark(folder.path()).value();
  EXPECT_NE(first, second);
  EXPECT_TRUE(FindFolderMark(folder.path(), first).ok()) << "both may be starting";
  EXPECT_TRUE(FindFolderMark(folder.path(), second).ok());
  RemoveFolderMark(folder.path(), first);
  EXPECT_FALSE(FindFolderMark(folder.path(), first).ok());
  EXPECT_TRUE(FindFolderMark(folder.path(), second).ok());
}

TEST(FolderMark, OfAJobThatDiedLongAgoGoes) {
  const TemporaryFolder folder;
  const auto age = [&](const std::string& mark, std::chrono::hours hours) {
    const auto path = folder.path() / mark;
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) - hours);
  };
  const std::string abandoned = MakeFolderMark(folder.path()).value();
  const std::string slow = MakeFolderMark(folder.path()).value();
  age(abandoned, 25h);
  age(slow, 23h);
  MakeFolderMark(folder.path()).value();
  EXPECT_FALSE(FindFolderMark(folder.path(), abandoned).ok());
  EXPECT_TRUE(FindFolderMark(folder.path(), slow).ok());
}

}  // namespace
}  // namespace ds::checkpoint
