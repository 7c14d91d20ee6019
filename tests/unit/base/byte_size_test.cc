#include "runtime/base/byte_size.h"

#include <gtest/gtest.h>

namespace ds {
namespace {

TEST(ByteSize, HasThreeDigits) {
  EXPECT_EQ(ByteSize(0), "0 B");
  EXPECT_EQ(ByteSize(1023), "1023 B");
  EXPECT_EQ(ByteSize(1536), "1.50 KiB");
  EXPECT_EQ(ByteSize(1024 * 1024 - 1), "1.00 MiB");
  EXPECT_EQ(ByteSize(std::uint64_t{475} << 20), "475 MiB");
  EXPECT_EQ(ByteSize(UINT64_MAX), "16.0 EiB");
}

}  // namespace
}  // namespace ds
