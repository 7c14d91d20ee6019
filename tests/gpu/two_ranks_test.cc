// Two ranks that would have one GPU between them, as the mistake is made: by what they may see.

#include <gmock/gmock.h>

#include <cstdlib>

#include "runtime/device/rank_device.h"
#include "tests/support/rank_processes.h"
#include "tests/support/requirement.h"

namespace ds::testing {
namespace {

TEST(GpuRanks, TwoOnOneGpuAreRefusedByName) {
  ASSERT_EQ(::setenv("CUDA_VISIBLE_DEVICES", "0", /*overwrite=*/1), 0);
  RankProcesses ranks(
      2, [](comm::Communicator&) { return 0; }, {}, device::DeviceChoice::kCuda);
  const RankEnd ends[] = {ranks.Wait(0), ranks.Wait(1)};
  // Behind the forks, which nothing that CUDA has opened would survive; this process has had
  // tensors by now, and cannot open the device itself.
  const auto cuda = device::LoadCudaPlugin();
  if (!cuda.ok()) return SkipWithout("gpu", "not run: " + cuda.status().message());
  if ((*cuda)->DeviceCount() == 0) return SkipWithout("gpu", "not run: there is no GPU");
  for (const RankEnd& end : ends) {
    EXPECT_EQ(end.exit_code, kRankDidNotConnect);
    EXPECT_THAT(end.message, ::testing::HasSubstr("rank 0 and rank 1 have one GPU, "));
  }
}

}  // namespace
}  // namespace ds::testing
