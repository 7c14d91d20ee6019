#include "runtime/offload/bandwidth.h"

#include <gtest/gtest.h>

namespace ds::offload {
namespace {

TEST(MeasureMemory, ReportsAnyNumberOfThreads) {
  for (const int threads : {1, 3}) {
    const StatusOr<MemorySpeed> speed = MeasureMemory(threads, std::int64_t{4} << 20);
    ASSERT_TRUE(speed.ok()) << speed.status().message();
    EXPECT_EQ(speed->threads, threads);
    EXPECT_GT(speed->bytes_per_second, 1e6);
    EXPECT_LT(speed->bytes_per_second, 1e14);
  }
}

TEST(MeasureMemory, ReportsTooLittleMemory) {
  EXPECT_EQ(MeasureMemory(1, std::int64_t{1} << 60).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(MeasureMemory, ListsThreadCountsUpToTheCores) {
  const std::vector<int> counts = ListThreadCounts();
  EXPECT_EQ(counts.front(), 1);
  for (std::size_t i = 1; i < counts.size(); ++i) EXPECT_GT(counts[i], counts[i - 1]);
}

}  // namespace
}  // namespace ds::offload
