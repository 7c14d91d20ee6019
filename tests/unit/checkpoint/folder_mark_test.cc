#include "runtime/checkpoint_format/folder_mark.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/base/owner_mark.h"
#include "tests/support/dead_owner.h"
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
  // Writes a mark's file again, as an owner left it so long ago.
  const auto leave = [&](const std::string& mark, const std::string& owner, auto age) {
    const auto path = folder.path() / mark;
    std::ofstream(path) << owner;
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) - age);
  };
  const std::string dead = ds::testing::MarkOfTheDead();
  const std::string abandoned = MakeFolderMark(folder.path()).value();
  const std::string slow = MakeFolderMark(folder.path()).value();
  const std::string living = MakeFolderMark(folder.path()).value();
  leave(abandoned, dead, 25h);
  leave(slow, dead, 23h);
  leave(living, MakeOwnMark(), 25h);
  leave(".shared-notes", "of the user", 25h);
  leave(".shared-of-another-host", "0" + dead, 25h);
  MakeFolderMark(folder.path()).value();
  EXPECT_FALSE(FindFolderMark(folder.path(), abandoned).ok());
  for (const std::string& mark :
       {slow, living, std::string(".shared-notes"), std::string(".shared-of-another-host")}) {
    EXPECT_TRUE(FindFolderMark(folder.path(), mark).ok()) << mark;
  }
}

}  // namespace
}  // namespace ds::checkpoint
