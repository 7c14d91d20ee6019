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

// The value of one line of its status; "" when there is none.
std::string StatusOf(const std::string& process, const std::string& name) {
  std::ifstream status("/proc/" + process + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return line.substr(name.size());
  }
  return "";
}

// The guardian of a dsrund that `wrapper` starts, which gets its path and arguments.
std::uint64_t LockedByGuardian(const std::string& wrapper) {
  const ds::testing::TemporaryFolder folder;
  const std::string dsrund = (folder.path() / "dsrund").string();
  const std::string script = "#!/bin/sh\n" + wrapper + " '" DS_BIN_DIR "/dsrund' \"$@\"\n";
  EXPECT_TRUE(WriteFileAtomically(dsrund, script, 0700).ok());
  auto daemon = cli::LocalDaemon::Start({.job_id = "test-job", .dsrund = dsrund});
  EXPECT_TRUE(daemon.ok()) << daemon.status().message();
  if (!daemon.ok()) return 0;
  const pid_t guardian = ds::testing::ParentOf((*daemon)->pid());
  // It has its name when it is done with its memory.
  while (NameOf(guardian) != "dsrun-guard") ::sched_yield();
  return std::stoull(StatusOf(std::to_string(guardian), "VmLck:"));
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
  const std::uint64_t some = LockedByGuardian(WithMemoryLimit("8192"));
  EXPECT_GT(some, 100U);
  EXPECT_LT(some, kProgramKib);
  EXPECT_EQ(LockedByGuardian(WithMemoryLimit("0")), 0U) << "and has started";
}

TEST_F(GuardianTest, IsLockedInMemoryWhole) {
  if (!MayLockWithoutBound()) GTEST_SKIP() << "needs a user who may lock memory without bound";
  EXPECT_GT(LockedByGuardian("exec"), kProgramKib);
}

}  // namespace
}  // namespace ds::procs
