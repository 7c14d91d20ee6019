#include "runtime/base/process_stat.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <ctime>
#include <thread>

namespace ds {
namespace {

TEST(ProcessStatTest, OfThisProcess) {
  const auto stat = ReadProcessStat(::getpid());
  ASSERT_TRUE(stat.has_value());
  EXPECT_EQ(stat->state, 'R');
  EXPECT_EQ(stat->parent, ::getppid());
  EXPECT_GT(stat->start, 0u);
}

TEST(ProcessStatTest, CountsTheTimeOfItsThreads) {
  const std::uint64_t before = ReadProcessStat(::getpid())->processor_ticks;
  const long more = CLOCKS_PER_SEC / ::sysconf(_SC_CLK_TCK) * 2;
  for (const std::clock_t begin = std::clock(); std::clock() - begin < more;) {
  }
  EXPECT_GT(ReadProcessStat(::getpid())->processor_ticks, before);
}

TEST(ProcessStatTest, OfAStoppedChildWithANameThatLooksLikeFields) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_NAME, "a) (R\n1 2", 0, 0, 0);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  const auto stat = ReadProcessStat(child);
  ASSERT_TRUE(stat.has_value());
  EXPECT_EQ(stat->name, "a) (R\n1 2");
  EXPECT_EQ(stat->state, 'T');
  EXPECT_TRUE(IsStopped(child));
  EXPECT_FALSE(IsStopped(::getpid()));
  EXPECT_EQ(stat->parent, ::getpid());
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_FALSE(ReadProcessStat(child).has_value());
}

// Reading fails then, if the file was opened before.
TEST(ProcessStatTest, OfProcessesThatEndMeanwhile) {
  for (int round = 0; round < 300; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(0);
    std::thread reaper([child] { ::waitpid(child, nullptr, 0); });
    while (ReadProcessStat(child).has_value()) {
    }
    reaper.join();
  }
}

}  // namespace
}  // namespace ds
