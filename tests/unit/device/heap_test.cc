#include "runtime/device/heap.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <memory>

namespace ds::device {
namespace {

long CountPageFaults() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// 64 MiB, more than any threshold of glibc's, and two of 1 MiB.
void UseMemory() {
  for (const std::size_t bytes : {std::size_t{64} << 20, std::size_t{1} << 20}) {
    const auto first = std::make_unique_for_overwrite<char[]>(bytes);
    const auto second = std::make_unique_for_overwrite<char[]>(bytes);
    std::memset(first.get(), 1, bytes);
    std::memset(second.get(), first[bytes - 1], bytes);
    ASSERT_EQ(second[bytes / 2], 1);
  }
}

TEST(HeapTest, ReusesFreedMemoryWithoutPageFaults) {
  KeepFreedMemory();
  UseMemory();
  const long before = CountPageFaults();
  for (int i = 0; i < 5; ++i) UseMemory();
  EXPECT_LT(CountPageFaults() - before, 100) << "130 MiB are 33,000 pages, each time";
}

}  // namespace
}  // namespace ds::device
