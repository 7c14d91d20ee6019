#include "runtime/process/descriptor_table.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

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
