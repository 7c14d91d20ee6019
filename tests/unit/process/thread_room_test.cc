#include "runtime/process/thread_room.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/no_more_threads.h"

namespace ds {
namespace {

TEST(ThreadRoomTest, IsThereOnAnOrdinaryMachine) { EXPECT_TRUE(CheckThreadRoom(8).ok()); }

TEST(ThreadRoomTest, IsReportedAsMissing) {
  const testing::NoMoreThreads none;
  EXPECT_TRUE(CheckThreadRoom(0).ok());
  const Status room = CheckThreadRoom(3);
  EXPECT_EQ(room.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(room.message().find("3 threads are needed and 0 may be started"), std::string::npos)
      << room.message();
}

}  // namespace
}  // namespace ds
