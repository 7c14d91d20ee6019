// Control groups, kernel log and evidence over a folder that looks like a host.

#include "daemon/ranks/evidence_collector.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/program.h"

namespace ds::daemon {
namespace {

namespace fs = std::filesystem;

constexpr char kHybridMounts[] =
    "30 23 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs mode=755\n"
    "31 30 0:27 / /sys/fs/cgroup/memory rw shared:9 master:1 - cgroup cgroup rw,memory\n"
    "32 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

class FakeHost : public ::testing::Test {
 protected:
  void Write(const std::string& file, const std::string& text) const {
    const fs::path path = root() / file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void HybridHost() const {
    Write("proc/self/mountinfo", kHybridMounts);
    Write("proc/self/cgroup", "4:memory:/a/b\n1:cpu:/a\n0::/a\n");
    Write("sys/fs/cgroup/memory/a/b/memory.oom_control",
          "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
    Write("sys/fs/cgroup/memory/a/b/memory.stat", "cache 1\nhierarchical_memory_limit 1048576\n");
    Write("sys/fs/cgroup/memory/a/b/memory.max_usage_in_bytes", "1048000\n");
  }
  void UnifiedHost() const {
    Write("proc/self/mountinfo", "33 30 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    Write("proc/self/cgroup", "0::/job/step\n");
    Write("sys/fs/cgroup/job/step/memory.events", "low 0\nmax 3\noom 1\noom_kill 1\n");
    Write("sys/fs/cgroup/job/step/memory.max", "max\n");
    Write("sys/fs/cgroup/job/step/memory.peak", "777\n");
    Write("sys/fs/cgroup/job/memory.max", "4096\n");
  }
  const fs::path& root() const { return folder_.path(); }

  ds::testing::TemporaryFolder folder_;
};

TEST_F(FakeHost, VersionOneNextToAUnifiedHierarchyWithoutControllers) {
  HybridHost();
  const OwnCgroups cgroups = FindOwnCgroups(root());
  EXPECT_EQ(cgroups.unified, root() / "sys/fs/cgroup/unified/a");
  EXPECT_EQ(cgroups.memory_v1, root() / "sys/fs/cgroup/memory/a/b");
  const auto memory = ReadGroupMemory(cgroups);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->oom_kills, 2U);
  EXPECT_EQ(ReadOomKills(cgroups), 2U);
  EXPECT_EQ(memory->limit, 1048576U);
  EXPECT_EQ(memory->peak, 1048000U);
  Write("sys/fs/cgroup/memory/a/b/memory.stat", "hierarchical_memory_limit 9223372036854771712\n");
  EXPECT_FALSE(ReadGroupMemory(cgroups)->limit.has_value());
}

TEST_F(FakeHost, VersionTwoWithTheLimitOfAGroupAbove) {
  UnifiedHost();
  const OwnCgroups cgroups = FindOwnCgroups(root());
  EXPECT_EQ(cgroups.unified, root() / "sys/fs/cgroup/job/step");
  const auto memory = ReadGroupMemory(cgroups);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->oom_kills, 1U);
  EXPECT_EQ(ReadOomKills(cgroups), 1U);
  EXPECT_EQ(memory->limit, 4096U);
  EXPECT_EQ(memory->peak, 777U);
}

TEST_F(FakeHost, AContainerSeesItsGroupAsTheRoot) {
  UnifiedHost();
  Write("proc/self/mountinfo", "33 30 0:29 /job /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  EXPECT_EQ(FindOwnCgroups(root()).unified, root() / "sys/fs/cgroup/step");
  Write("proc/self/cgroup", "0::/../elsewhere\n");
  EXPECT_TRUE(FindOwnCgroups(root()).unified.empty());
}

TEST_F(FakeHost, NamesOfFoldersMayHaveBlanks) {
  UnifiedHost();
  Write("proc/self/mountinfo",
        "33 30 0:29 /my\\040jobs /sys/fs/c\\040g\\134x rw - cgroup2 cgroup2 rw\n");
  Write("proc/self/cgroup", "0::/my jobs/step\n");
  EXPECT_EQ(FindOwnCgroups(root()).unified, root() / "sys/fs/c g\\x/step");
}

TEST_F(FakeHost, DamagedOrMissingFilesAreNoGroups) {
  EXPECT_TRUE(FindOwnCgroups(root()).unified.empty());
  EXPECT_FALSE(ReadGroupMemory({}).has_value());
  EXPECT_FALSE(ReadOomKills({}).has_value());
  Write("proc/self/mountinfo", "33 30\n - \n1 2 3 4 5 - cgroup2\nx - cgroup2 y z\n\n");
  Write("proc/self/cgroup", "0\n:\n0::\n::::\n");
  EXPECT_TRUE(FindOwnCgroups(root()).unified.empty());
}

TEST_F(FakeHost, AKillThatWasCountedIsHeldAgainstOneRank) {
  HybridHost();
  EvidenceCollector evidence(root());
  const RankExit killed{.signal = SIGKILL};
  EXPECT_FALSE(evidence.Collect(killed, 17).oom_killed());
  Write("sys/fs/cgroup/memory/a/b/memory.oom_control", "oom_kill 3\n");
  const v1::RankExited first = evidence.Collect(killed, 18);
  EXPECT_TRUE(first.oom_killed());
  EXPECT_EQ(first.oom().group_kills(), 1U);
  EXPECT_EQ(first.oom().group_limit_bytes(), 1048576U);
  EXPECT_TRUE(first.oom().group_readable());
  EXPECT_FALSE(first.oom().log_readable());
  EXPECT_FALSE(evidence.Collect(killed, 19).oom_killed());
  EXPECT_GT(first.host_memory_bytes(), 0U);
}

TEST_F(FakeHost, EarlierKillsAreNotBlamedOnTheNextRanks) {
  HybridHost();
  EvidenceCollector evidence(root());
  Write("sys/fs/cgroup/memory/a/b/memory.oom_control", "oom_kill 3\n");
  evidence.Restart();
  EXPECT_FALSE(evidence.Collect({.signal = SIGKILL}, 17).oom_killed());
  Write("sys/fs/cgroup/memory/a/b/memory.oom_control", "oom_kill 4\n");
  EXPECT_EQ(evidence.Collect({.signal = SIGKILL}, 18).oom().group_kills(), 1U);
}

TEST_F(FakeHost, AnOrdinaryEndReportsTheOutOfMemoryKillerWithoutBlame) {
  UnifiedHost();
  EvidenceCollector evidence(root());
  Write("sys/fs/cgroup/job/step/memory.events", "oom_kill 2\n");
  const v1::RankExited ended = evidence.Collect({.exit_code = 1}, 17);
  EXPECT_FALSE(ended.oom_killed());
  EXPECT_EQ(ended.oom().group_kills(), 1U);
}

TEST_F(FakeHost, SharedMemoryIsLookedAtAfterABusError) {
  fs::create_directories(root() / "dev/shm");
  EvidenceCollector evidence(root());
  EXPECT_FALSE(evidence.Collect({.signal = SIGSEGV}, 17).has_shared_memory());
  const v1::RankExited ended = evidence.Collect({.signal = SIGBUS}, 17);
  EXPECT_GT(ended.shared_memory().total_bytes(), 0U);
  EXPECT_LE(ended.shared_memory().lowest_free_bytes(), ended.shared_memory().free_bytes());
}

TEST(KernelLogTest, TheVictimOfARecord) {
  const auto global = ParseOomKill(
      "3,1404,52;Out of memory: Killed process 4711 (python3) total-vm:9kB, anon-rss:8kB\n "
      "KEY=v\n");
  ASSERT_TRUE(global.has_value());
  EXPECT_EQ(global->pid, 4711);
  EXPECT_EQ(global->text,
            "Out of memory: Killed process 4711 (python3) total-vm:9kB, anon-rss:8kB");
  EXPECT_EQ(ParseOomKill("3,1,2,-;Memory cgroup out of memory: Killed process 5 (x y)")->pid, 5);
  EXPECT_EQ(ParseOomKill("3,1,2,-;oom_reaper: reaped process 4711 (python3)"), std::nullopt);
  for (const char* record : {"", ";", "x;Killed process", "x;Killed process (x)",
                             "x;Killed process -3 (x)", "x;Killed process 99999999999999 (x)",
                             "no semicolon Killed process 5 (x)", "x;Killed process 5"}) {
    EXPECT_FALSE(ParseOomKill(record).has_value()) << record;
  }
}

}  // namespace
}  // namespace ds::daemon
