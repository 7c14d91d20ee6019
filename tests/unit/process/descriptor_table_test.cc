#include "runtime/process/descriptor_table.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace ds {
namespace {

// How many descriptors the kernel has room for.
int TableSize() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int size = 0;
    if (word == "FDSize:" && status >> size) return size;
  }
  return -1;
}

// In a process of its own, which begins with a soft limit below the hard one.
TEST(DescriptorTableTest, TheLimitIsRaisedAndTheOldOneKnown) {
  const auto raise = [] {
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    before.rlim_cur = before.rlim_max / 2;
    ::setrlimit(RLIMIT_NOFILE, &before);
    const rlimit found = RaiseOpenFilesLimit(), again = RaiseOpenFilesLimit();
    rlimit now{};
    ::getrlimit(RLIMIT_NOFILE, &now);
    const bool well = found.rlim_cur == before.rlim_cur && again.rlim_cur == found.rlim_cur &&
                      now.rlim_cur == before.rlim_max && now.rlim_max == before.rlim_max;
    std::_Exit(well ? 0 : 1);
  };
  EXPECT_EXIT(raise(), ::testing::ExitedWithCode(0), "");
}

TEST(DescriptorTableTest, HoldsAsManyAsTheLimitAllows) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int size = TableSize();
  ASSERT_GT(size, 0);
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(size);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  ReserveDescriptors(4 * size);
  EXPECT_EQ(TableSize(), size);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  if (before.rlim_cur < 4 * low.rlim_cur) {
    GTEST_SKIP() << "this process may not open " << 4 * size << " files";
  }
  ReserveDescriptors(4 * size);
  EXPECT_GE(TableSize(), 4 * size);
}

}  // namespace
}  // namespace ds
