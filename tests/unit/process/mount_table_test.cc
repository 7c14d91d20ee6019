#include "runtime/process/mount_table.h"

#include <gtest/gtest.h>

namespace ds {
namespace {

TEST(MountTableTest, HasTheMountsInTheirOrder) {
  const std::vector<Mount> mounts = ParseMountTable(
      "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
      "40 22 0:40 /part /home rw master:3 shared:4 - nfs4 server:/home rw,vers=4.2\n");
  ASSERT_EQ(mounts.size(), 2u);
  EXPECT_EQ(mounts[0].point, "/");
  EXPECT_EQ(mounts[1].root, "/part");
  EXPECT_EQ(mounts[1].point, "/home");
  EXPECT_EQ(mounts[1].type, "nfs4");
  EXPECT_EQ(mounts[1].options, "rw,vers=4.2");
}

TEST(MountTableTest, PathsAreUnescaped) {
  const std::vector<Mount> mounts =
      ParseMountTable("41 22 0:41 /a\\134b /home\\040of\\040all\\9 rw - lustre mds:/l rw\n");
  ASSERT_EQ(mounts.size(), 1u);
  EXPECT_EQ(mounts[0].root, "/a\\b");
  EXPECT_EQ(mounts[0].point, "/home of all\\9") << "no escape";
}

TEST(MountTableTest, OtherLinesAreLeftOut) {
  EXPECT_TRUE(
      ParseMountTable("broken\n22 1 8:1 / /\n22 1 - ext4 a b\n22 1 8:1 / / rw - \n").empty());
  EXPECT_EQ(ParseMountTable("22 1 8:1 / / rw - tmpfs").size(), 1u);
}

}  // namespace
}  // namespace ds
