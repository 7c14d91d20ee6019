// The process above dsrund that ends what its ranks have left: what it locks in memory.

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "cli/host/local_daemon.h"
#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::procs {
namespace {

std::string NameOf(pid_t process) {
  std::string name;
  std::ifstream comm("/proc/" + std::to_string(process) + "/comm");
  std::getline(comm, name);
  return name;
}

// What stands behind the name in its line; "" when there is none.
std::string ValueIn(const std::string& file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name)) return line.substr(name.size());
  }
  return "";
}

std::string StatusOf(const std::string& process, const std::string& name) {
  return ValueIn("/proc/" + process + "/status", name);
}

struct Lock {
  std::uint64_t kib = 0;
  std::string words;  // on standard error
};

// Of the guardian of a dsrund that `wrapper` starts, which gets its path and arguments.
Lock LockOfGuardian(const std::string& wrapper) {
  const ds::testing::TemporaryFolder folder;
  const std::string dsrund = (folder.path() / "dsrund").string();
  const std::string words = (folder.path() / "words").string();
  const std::string script =
      "#!/bin/sh\n" + wrapper + " '" DS_BIN_DIR "/dsrund' \"$@\" 2> '" + words + "'\n";
  EXPECT_TRUE(WriteFileAtomically(dsrund, script, 0700).ok());
  auto daemon = cli::LocalDaemon::Start({.job_id = "test-job", .dsrund = dsrund});
  EXPECT_TRUE(daemon.ok()) << daemon.status().message();
  if (!daemon.ok()) return {};
  const pid_t guardian = ds::testing::ParentOf((*daemon)->pid());
  // It has its name when it is done with its memory.
  while (NameOf(guardian) != "dsrun-guard") ::sched_yield();
  return {.kib = std::stoull(StatusOf(std::to_string(guardian), "VmLck:")),
          .words = ReadFile(words).value()};
}

// Who has CAP_IPC_LOCK may, as root does outside of containers.
bool MayLockWithoutBound() {
  return (std::stoull(StatusOf("self", "CapEff:"), nullptr, 16) >> CAP_IPC_LOCK & 1U) != 0;
}

// Who may lock without bound gives that up.
std::string WithMemoryLimit(const std::string& kib) {
  const std::string limit = "ulimit -l " + kib + "\nexec";
  return MayLockWithoutBound() ? limit + " setpriv --bounding-set=-ipc_lock --" : limit;
}

constexpr std::uint64_t kProgramKib = 12'000;  // dsrund is not smaller

class GuardianTest : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer takes the locking of memory out of every program";
#endif
  }
};

TEST_F(GuardianTest, IsLockedInMemoryAsFarAsItsUserMay) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  if (limit.rlim_max < 8'192 * 1'024) GTEST_SKIP() << "no process may lock 8 MiB here";
  const Lock some = LockOfGuardian(WithMemoryLimit("8192"));
  EXPECT_GT(some.kib, 100U);
  EXPECT_LT(some.kib, kProgramKib);
  EXPECT_EQ(some.words, "");
  const Lock none = LockOfGuardian(WithMemoryLimit("0"));
  EXPECT_EQ(none.kib, 0U) << "and has started";
  const bool swaps = std::stoull(ValueIn("/proc/meminfo", "SwapTotal:")) > 0;
  EXPECT_EQ(none.words.find("may not lock memory") != std::string::npos, swaps)
      << "who has no swap need not hear of it: " << none.words;
}

TEST_F(GuardianTest, IsFullyLockedInMemory) {
  if (!MayLockWithoutBound()) GTEST_SKIP() << "needs a user who may lock memory without bound";
  EXPECT_GT(LockOfGuardian("exec").kib, kProgramKib);
}

}  // namespace
}  // namespace ds::procs
