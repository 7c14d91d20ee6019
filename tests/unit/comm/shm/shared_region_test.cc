#include "runtime/comm/shm/shared_region.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace ds::comm {
namespace {

using ::testing::HasSubstr;

TEST(SharedRegionTest, OpenedByItsHandleItIsTheSameMemory) {
  StatusOr<SharedRegion> mine = SharedRegion::Create(100000);
  ASSERT_TRUE(mine.ok()) << mine.status().message();
  const StatusOr<RegionHandle> handle = RegionHandle::FromString(mine->handle().ToString());
  ASSERT_TRUE(handle.ok());
  StatusOr<SharedRegion> other = SharedRegion::Open(*handle);
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_EQ(other->data()[99999], std::byte{0});
  std::memcpy(mine->data() + 5, "hello", 5);
  EXPECT_EQ(std::memcmp(other->data() + 5, "hello", 5), 0);
}

TEST(SharedRegionTest, OnceItsDescriptorIsClosedNobodyElseGetsIn) {
  StatusOr<SharedRegion> mine = SharedRegion::Create(4096);
  ASSERT_TRUE(mine.ok());
  const RegionHandle handle = mine->handle();
  mine->CloseDescriptor();
  mine->data()[0] = std::byte{1};
  EXPECT_EQ(SharedRegion::Open(handle).status().code(), StatusCode::kNotFound);
}

TEST(SharedRegionTest, AnotherSizeThanAnnouncedIsRefused) {
  const StatusOr<SharedRegion> mine = SharedRegion::Create(4096);
  ASSERT_TRUE(mine.ok());
  RegionHandle handle = mine->handle();
  handle.bytes = 8192;
  EXPECT_THAT(SharedRegion::Open(handle).status().message(), HasSubstr("not the announced 8192"));
}

TEST(SharedRegionTest, HandlesThatAreNoneAreRefused) {
  for (const char* text : {"", "1 2", "a b c", "1 2 3 4", "1 2 3x"}) {
    EXPECT_FALSE(RegionHandle::FromString(text).ok()) << text;
  }
}

}  // namespace
}  // namespace ds::comm
