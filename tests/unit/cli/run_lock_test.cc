#include "cli/job/run_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "runtime/base/host_name.h"
#include "tests/support/program.h"

namespace ds::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class RunLockTest : public ::testing::Test {
 protected:
  std::string Refusal(int error) const {
    return RunLock::Take(folder_.path(), [=](int) { return error; }).status().message();
  }

  const ds::testing::TemporaryFolder folder_;
  const std::filesystem::path file_ = folder_.path() / "job.lock";
};

TEST_F(RunLockTest, TheSecondIsToldWhoIsFirst) {
  const auto first = RunLock::Take(folder_.path());
  ASSERT_TRUE(first.ok()) << first.status().message();
  const auto holder = nlohmann::json::parse(*ReadFile(file_));
  EXPECT_EQ(holder["host"], HostName());
  EXPECT_EQ(holder["pid"], ::getpid());
  EXPECT_EQ(holder["boot_id"].get<std::string>().size(), 36U);
  const auto second = RunLock::Take(folder_.path());
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.status().message(),
              MatchesRegex(folder_.path().string() + " is in use by dsrun, pid " +
                           std::to_string(::getpid()) + " on host " + HostName() +
                           ", since [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} UTC"));
}

TEST_F(RunLockTest, IsReleasedWithItsObject) {
  ASSERT_TRUE(RunLock::Take(folder_.path()).ok());
  EXPECT_TRUE(RunLock::Take(folder_.path()).ok());
}

// The end of the process that took the lock leaves it with the child that has the descriptor.
TEST_F(RunLockTest, AChildThatInheritsTheDescriptorHoldsIt) {
  int gate[2];
  ASSERT_EQ(::pipe2(gate, O_CLOEXEC), 0);
  pid_t child = -1;
  {
    const auto lock = RunLock::Take(folder_.path());
    ASSERT_TRUE(lock.ok());
    child = ::fork();
    if (child == 0) {
      ::close(gate[1]);
      char byte = 0;
      ::_exit(::read(gate[0], &byte, 1) == 0 ? 0 : 1);
    }
  }
  EXPECT_EQ(RunLock::Take(folder_.path()).status().code(), StatusCode::kFailedPrecondition);
  ::close(gate[0]);
  ::close(gate[1]);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(RunLock::Take(folder_.path()).ok());
}

TEST_F(RunLockTest, EveryOtherErrorRefuses) {
  for (const int error : {ENOLCK, ENOSYS, EOPNOTSUPP, EINVAL}) {
    EXPECT_THAT(Refusal(error), HasSubstr("mount the file system with locks")) << error;
  }
  for (const int error : {EIO, ESTALE, EBADF}) {
    EXPECT_THAT(Refusal(error), HasSubstr("job.lock: cannot lock it: ")) << error;
  }
}

TEST_F(RunLockTest, AHolderWithoutANameIsAnother) {
  for (const int error : {EAGAIN, EACCES}) {
    EXPECT_EQ(Refusal(error), folder_.path().string() + " is in use by another dsrun");
  }
}

TEST_F(RunLockTest, AFileOfAnotherProgramIsNotOverwritten) {
  ASSERT_TRUE(WriteFileAtomically(file_, "pid 7\n").ok());
  EXPECT_EQ(RunLock::Take(folder_.path()).status().message(),
            file_.string() + " is not a file of dsrun's");
  EXPECT_EQ(*ReadFile(file_), "pid 7\n");
}

}  // namespace
}  // namespace ds::cli
