// Two ranks that would have one GPU between them, as the mistake is made: by what they may see.

#include <gmock/gmock.h>

#include <cstdlib>
#include <vector>

#include "runtime/device/rank_device.h"
#include "tests/support/rank_processes.h"
#include "tests/support/requirement.h"

namespace ds::testing {
namespace {

class GpuRanks : public ::testing::Test {
 protected:
  // Before a test begins, as that sets LibTorch's seed, and LibTorch asks once for all whether
  // there is CUDA.
  static void SetUpTestSuite() {
    ASSERT_EQ(::setenv("CUDA_VISIBLE_DEVICES", "0", /*overwrite=*/1), 0);
    RankProcesses ranks(
        2, [](comm::Communicator&) { return 0; }, {}, device::DeviceChoice::kCuda);
    ends_ = {ranks.Wait(0), ranks.Wait(1)};
  }

  static inline std::vector<RankEnd> ends_;
};

TEST_F(GpuRanks, TwoOnOneGpuAreRefusedByName) {
  // Behind the forks, which nothing that CUDA has opened would survive.
  const auto cuda = device::LoadCudaPlugin();
  if (!cuda.ok()) return SkipWithout("gpu", "not run: " + cuda.status().message());
  if ((*cuda)->DeviceCount() == 0) return SkipWithout("gpu", "not run: there is no GPU");
  for (const RankEnd& end : ends_) {
    EXPECT_EQ(end.exit_code, kRankDidNotConnect);
    EXPECT_THAT(end.message, ::testing::HasSubstr("rank 0 and rank 1 have one GPU, "));
  }
}

}  // namespace
}  // namespace ds::testing
