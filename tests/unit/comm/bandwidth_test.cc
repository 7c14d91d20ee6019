#include "runtime/comm/bandwidth.h"

#include <gtest/gtest.h>

namespace ds::comm {
namespace {

// 4000 bytes in one rank's input, half a second, 4 ranks; DeepSpeed's formulas by hand.
TEST(BandwidthTest, IsThatOfDsBench) {
  struct Case {
    const char* collective;
    double throughput;
    double bus;
  };
  for (const Case& each : {Case{"all_reduce", 16000, 12000}, Case{"all_gather", 32000, 24000},
                           Case{"reduce_scatter", 8000, 6000}, Case{"all_to_all", 8000, 6000},
                           Case{"broadcast", 8000, 8000}, Case{"pt2pt", 8000, 8000}}) {
    const Bandwidth bandwidth = ComputeBandwidth(each.collective, 4000, 0.5, 4);
    EXPECT_DOUBLE_EQ(bandwidth.throughput, each.throughput) << each.collective;
    EXPECT_DOUBLE_EQ(bandwidth.bus, each.bus) << each.collective;
  }
}

}  // namespace
}  // namespace ds::comm
