#include "runtime/process/thread_quota.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/no_more_threads.h"

namespace ds {
namespace {

TEST(ThreadQuotaTest, IsThereOnAnOrdinaryMachine) { EXPECT_TRUE(CheckThreadQuota(8).ok()); }

TEST(ThreadQuotaTest, IsReportedAsMissing) {
  const testing::NoMoreThreads none;
  EXPECT_TRUE(CheckThreadQuota(0).ok());
  const Status quota = CheckThreadQuota(3);
  EXPECT_EQ(quota.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(quota.message().find("3 threads are needed and 0 may be started"), std::string::npos)
      << quota.message();
}

}  // namespace
}  // namespace ds
