#include "runtime/device/process_memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace ds::device {
namespace {

constexpr std::int64_t kMebibyte = 1 << 20;

TEST(ProcessMemoryTest, TouchedPagesShowAndThePeakStays) {
  const StatusOr<ProcessMemory> before = ReadProcessMemory();
  ASSERT_TRUE(before.ok()) << before.status().message();
  {
    std::vector<char> touched(64 * kMebibyte, 1);
    const StatusOr<ProcessMemory> during = ReadProcessMemory();
    EXPECT_GE(during->resident_bytes - before->resident_bytes, 60 * kMebibyte);
    EXPECT_NE(touched.back(), 0);
  }
  const StatusOr<ProcessMemory> after = ReadProcessMemory();
  EXPECT_GE(after->peak_resident_bytes - before->resident_bytes, 60 * kMebibyte);
  EXPECT_LT(after->resident_bytes, after->peak_resident_bytes);
}

}  // namespace
}  // namespace ds::device
