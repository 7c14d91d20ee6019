// Verdicts about what the kernel did: a real out-of-memory kill in a memory group, a real bus error
// in a full /dev/shm, and the control group that holds what ranks leave behind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/base/files.h"
#include "runtime/process/cgroups.h"
#include "tests/places.h"
#include "tests/support/memory_group.h"
#include "tests/support/program.h"
#include "tests/support/requirement.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

class EvidenceTest : public ::testing::Test {
 protected:
  // dsrun behind a shell command that ends with `exec "$@"`.
  ProgramResult Run(const Strings& shell, const Strings& rank) {
    Strings command = shell;
    command.insert(command.end(), {DS_BIN_DIR "/dsrun", "--device", "cpu", "--num_gpus", "1",
                                   "--run_dir", run().string(), "--", DS_TEST_RANK});
    command.insert(command.end(), rank.begin(), rank.end());
    return RunProgram(command);
  }
  nlohmann::json Verdict() const {
    return nlohmann::json::parse(*ReadFile(run() / "verdict.json"));
  }
  fs::path run() const { return folder_.path() / "run"; }

  TemporaryFolder folder_;
};

TEST_F(EvidenceTest, TheOutOfMemoryKillerIsNamedWithItsProof) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "what a sanitizer adds to dsrun and dsrund does not fit into the group's limit";
#endif
  const auto group = MemoryGroup::Make(std::uint64_t{192} << 20);
  if (!group) return SkipWithout("memory_groups", "no memory control group can be made here");
  const ProgramResult result = Run(group->Enter(), {"eat", "1024"});
  EXPECT_EQ(result.status, 137) << result.err;
  const auto verdict = Verdict();
  EXPECT_EQ(verdict["cause"], "out_of_memory") << verdict;
  EXPECT_EQ(verdict["signal"], SIGKILL);
  EXPECT_THAT(verdict["message"], HasSubstr("killed by the kernel: out of memory"));
  EXPECT_THAT(verdict["proof"], HasSubstr("at a limit of 192 MiB"));
  EXPECT_EQ(verdict["evidence"]["oom_kills"], 1);
  EXPECT_EQ(verdict["evidence"]["memory_limit_bytes"], 192 << 20);
  EXPECT_GT(verdict["evidence"]["max_rss_bytes"], 64 << 20);
  EXPECT_GT(verdict["pid"], 0);
}

TEST_F(EvidenceTest, AKillByHandIsNot) {
  const ProgramResult result = Run({}, {"raise", std::to_string(SIGKILL)});
  EXPECT_EQ(result.status, 137);
  EXPECT_EQ(Verdict()["cause"], "signal");
}

TEST_F(EvidenceTest, AFullSharedMemoryIsNamedWithItsProof) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer catches the rank's SIGBUS and ends it with status 1";
#endif
  // In a mount namespace of its own, so that nobody else's /dev/shm is filled.
  const Strings small = {"unshare",
                         "--mount",
                         "/bin/sh",
                         "-c",
                         "mount -t tmpfs -o size=2m none /dev/shm && exec \"$@\"",
                         "sh"};
  Strings probe = small;
  probe.push_back("/bin/true");
  if (RunProgram(probe).status != 0) {
    return SkipWithout("mounts", "no mount namespace can be made here");
  }
  const ProgramResult result = Run(small, {"fill-shm", "8"});
  EXPECT_EQ(result.status, 128 + SIGBUS) << result.err;
  EXPECT_EQ(Verdict()["cause"], "shared_memory_full") << Verdict();
  EXPECT_THAT(Verdict()["proof"], HasSubstr("free of 2.00 MiB"));
  EXPECT_THAT(Verdict()["hint"], HasSubstr("--shm-size"));
  EXPECT_EQ(Verdict()["evidence"]["shared_memory_bytes"], 2 << 20);
}

// Somebody's own group, whose name begins as ours do, with a process in it.
TEST_F(EvidenceTest, IgnoresAForeignControlGroup) {
  const fs::path own = FindOwnCgroups().unified;
  const fs::path group = own / ("dsrun-my-limits-" + std::to_string(::getpid()));
  if (own.empty() || ::mkdir(group.c_str(), 0755) != 0) {
    return SkipWithout("cgroups", "no v2 control group can be made here");
  }
  Program inside({"/bin/sh", "-c",
                  "echo $$ > " + (group / "cgroup.procs").string() + "; echo in; exec sleep 900"});
  ASSERT_TRUE(inside.WaitForOutput("in\n")) << inside.err();
  EXPECT_EQ(Run({}, {"exit", "0"}).status, 0);
  inside.Signal(SIGTERM);
  EXPECT_EQ(inside.Wait().status, 128 + SIGTERM) << "it was killed before";
  EXPECT_EQ(::rmdir(group.c_str()), 0) << "it is its owner's to remove";
}

TEST_F(EvidenceTest, AControlGroupHoldsTheRanksAndIsGoneAfterwards) {
  const fs::path own = FindOwnCgroups().unified;
  const fs::path probe = own / "dsrun_test_probe";
  if (own.empty() || ::mkdir(probe.c_str(), 0755) != 0) {
    return SkipWithout("cgroups", "no v2 control group can be made here");
  }
  ::rmdir(probe.c_str());
  const ProgramResult result = Run({}, {"cat", "/proc/self/cgroup"});
  EXPECT_EQ(result.status, 0) << result.err;
  const std::size_t begin = result.out.find("dsrun-test_rank-");
  ASSERT_NE(begin, std::string::npos) << result.out;
  const std::string group = result.out.substr(begin, result.out.find('\n', begin) - begin);
  EXPECT_FALSE(fs::exists(own / group)) << group;
}

}  // namespace
}  // namespace ds::testing
