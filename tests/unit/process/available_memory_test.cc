// The memory that ranks can have on a host, over folders that look like one.

#include "runtime/process/available_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/program.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

class AvailableMemoryTest : public ::testing::Test {
 protected:
  void Write(const std::string& file, const std::string& text) const {
    const fs::path path = folder_.path() / file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::optional<std::uint64_t> Read() const { return ReadAvailableMemory(folder_.path()); }

  void HostWith(int kibibytes) const {
    Write("proc/meminfo", "MemTotal:  9999 kB\nMemFree:  1 kB\nMemAvailable:  " +
                              std::to_string(kibibytes) + " kB\n");
  }
  void GroupOfVersionTwo() const {
    Write("proc/self/mountinfo", "33 30 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    Write("proc/self/cgroup", "0::/job/step\n");
  }
  void GroupOfVersionOne(const std::string& mounted, const std::string& own) const {
    Write("proc/self/mountinfo",
          "31 30 0:27 " + mounted + " /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    Write("proc/self/cgroup", "4:memory:" + own + "\n");
  }

  ds::testing::TemporaryFolder folder_;
};

TEST_F(AvailableMemoryTest, IsTheKernelsWhereNoGroupIsLimited) {
  HostWith(500);
  GroupOfVersionTwo();
  Write("sys/fs/cgroup/job/step/memory.max", "max\n");
  Write("sys/fs/cgroup/job/step/memory.current", "123\n");
  EXPECT_EQ(Read(), 500U * 1024);
}

TEST_F(AvailableMemoryTest, IsTheRemainderOfTheTightestGroup) {
  HostWith(5000);
  GroupOfVersionTwo();
  Write("sys/fs/cgroup/job/step/memory.max", "1000000\n");
  Write("sys/fs/cgroup/job/step/memory.current", "100000\n");
  Write("sys/fs/cgroup/job/memory.max", "900000\n");
  Write("sys/fs/cgroup/job/memory.current", "700000\n");
  Write("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 20000\nactive_file 30000\n");
  EXPECT_EQ(Read(), 250000U) << "of the upper one, whose files can go";
}

TEST_F(AvailableMemoryTest, IsNothingInAGroupThatIsFull) {
  HostWith(5000);
  GroupOfVersionTwo();
  Write("sys/fs/cgroup/job/step/memory.max", "1000\n");
  Write("sys/fs/cgroup/job/step/memory.current", "1200\n");
  EXPECT_EQ(Read(), 0U);
}

TEST_F(AvailableMemoryTest, VersionOneHasALimitAboveTheMountInTheStatistics) {
  HostWith(5000);
  GroupOfVersionOne("/", "/a");
  Write("sys/fs/cgroup/memory/a/memory.stat",
        "cache 1\nhierarchical_memory_limit 1048576\ntotal_inactive_file 40000\n"
        "total_active_file 8576\n");
  Write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "148576\n");
  EXPECT_EQ(Read(), 948576U);
}

TEST_F(AvailableMemoryTest, VersionOneComparesEachLimitWithItsOwnGroup) {
  HostWith(5000);
  GroupOfVersionOne("/", "/a/b");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "90000000\n");
  Write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000000\n");
  Write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "900000\n");
  Write("sys/fs/cgroup/memory/a/memory.stat", "total_inactive_file 30000\n");
  Write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
  Write("sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "200000\n");
  Write("sys/fs/cgroup/memory/a/b/memory.stat", "hierarchical_memory_limit 1000000\n");
  EXPECT_EQ(Read(), 130000U) << "of the upper one, which its other groups have filled";
}

TEST_F(AvailableMemoryTest, AGroupWithTheMountedGroupsNameAsPrefixIsNotInIt) {
  HostWith(500);
  GroupOfVersionOne("/job", "/jobs/b");
  Write("sys/fs/cgroup/memory/s/b/memory.limit_in_bytes", "1000\n");
  Write("sys/fs/cgroup/memory/s/b/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(Read(), 500U * 1024);
}

TEST_F(AvailableMemoryTest, AHostWithoutTheFactIsNoError) { EXPECT_FALSE(Read().has_value()); }

TEST(ThisHostsMemoryTest, IsThere) { EXPECT_GT(ReadAvailableMemory().value_or(0), 1U << 20); }

}  // namespace
}  // namespace ds
