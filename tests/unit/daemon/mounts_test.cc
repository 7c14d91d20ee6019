#include "daemon/inspect/mounts.h"

#include <gtest/gtest.h>

namespace ds::daemon {
namespace {

constexpr char kMounts[] =
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "23 22 0:21 / /proc rw - proc proc rw\n"
    "40 22 0:40 / /home rw master:3 shared:4 - nfs4 server:/home rw,vers=4.2\n"
    "41 22 0:41 / /home\\040of\\040all rw - lustre mds:/l rw\n"
    "42 40 0:42 / /home/me rw - autofs auto rw\n"
    "43 42 0:43 / /home/me rw - nfs server:/me rw\n";

TEST(MountsTest, TheDeepestMountHoldsThePath) {
  EXPECT_EQ(FindFileSystemType("/usr/bin/python3", kMounts), "ext4");
  EXPECT_EQ(FindFileSystemType("/home/you/train.py", kMounts), "nfs4");
  EXPECT_EQ(FindFileSystemType("/home", kMounts), "nfs4");
  EXPECT_EQ(FindFileSystemType("/homes/train.py", kMounts), "ext4");
  EXPECT_EQ(FindFileSystemType("/home of all/x", kMounts), "lustre");
}

TEST(MountsTest, ALaterMountHidesAnEarlierOne) {
  EXPECT_EQ(FindFileSystemType("/home/me/venv/bin/python", kMounts), "nfs");
}

TEST(MountsTest, WhatIsNotInTheTableIsUnknown) {
  EXPECT_EQ(FindFileSystemType("train.py", kMounts), "");
  EXPECT_EQ(FindFileSystemType("/x", "broken line\n"), "");
}

TEST(MountsTest, ReadsTheTableOfThisProcess) { EXPECT_EQ(FindFileSystemType("/proc/1"), "proc"); }

}  // namespace
}  // namespace ds::daemon
