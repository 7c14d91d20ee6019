#include "runtime/comm/shm/shared_region.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace ds::comm {
namespace {

using ::testing::HasSubstr;

TEST(SharedRegionTest, MappedTwiceItIsTheSameMemory) {
  StatusOr<SharedRegion> mine = SharedRegion::Create(100000);
  ASSERT_TRUE(mine.ok()) << mine.status().message();
  StatusOr<SharedRegion> other = SharedRegion::Map(mine->fd(), 100000);
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_EQ(other->data()[99999], std::byte{0});
  std::memcpy(mine->data() + 5, "hello", 5);
  mine->CloseDescriptor();
  EXPECT_EQ(std::memcmp(other->data() + 5, "hello", 5), 0);
}

TEST(SharedRegionTest, AnotherSizeThanExpectedIsRefused) {
  const StatusOr<SharedRegion> mine = SharedRegion::Create(4096);
  ASSERT_TRUE(mine.ok());
  EXPECT_THAT(SharedRegion::Map(mine->fd(), 8192).status().message(),
              HasSubstr("holds 4096 bytes where 8192 are expected"));
}

TEST(SharedRegionTest, RefusesInvalidDescriptors) {
  EXPECT_FALSE(SharedRegion::Map(UniqueFd(), 4096).ok());
}

}  // namespace
}  // namespace ds::comm
