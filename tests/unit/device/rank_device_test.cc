#include "runtime/device/rank_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace ds::device {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(RankDeviceTest, NamesOfChoices) {
  EXPECT_EQ(*DeviceChoiceFromName("auto"), DeviceChoice::kAuto);
  EXPECT_EQ(*DeviceChoiceFromName("cpu"), DeviceChoice::kCpu);
  EXPECT_EQ(*DeviceChoiceFromName("cuda"), DeviceChoice::kCuda);
  EXPECT_THAT(DeviceChoiceFromName("gpu").status().message(), HasSubstr("\"gpu\""));
}

TEST(RankDeviceTest, CpuNeedsNothing) {
  const StatusOr<RankDevice> device = OpenRankDevice(DeviceChoice::kCpu, 5);
  ASSERT_TRUE(device.ok());
  EXPECT_TRUE(device->device.is_cpu());
  EXPECT_EQ(device->cuda, nullptr);
}

TEST(RankDeviceTest, WithoutADriverAutoIsTheCpuAndCudaIsRefused) {
  if (std::filesystem::exists("/dev/nvidiactl") || std::filesystem::exists("/dev/dxg")) {
    GTEST_SKIP() << "this machine has an NVIDIA driver";
  }
  EXPECT_TRUE(OpenRankDevice(DeviceChoice::kAuto, 0)->device.is_cpu());
  const Status refused = OpenRankDevice(DeviceChoice::kCuda, 0).status();
  EXPECT_EQ(refused.code(), StatusCode::kNotFound);
  EXPECT_THAT(refused.message(), HasSubstr("device \"cuda\" was asked for"));
}

// Beside this program there is no plugin.
TEST(RankDeviceTest, AMissingPluginIsReportedWithEveryPlaceAndItsReason) {
  const std::string why = "libdsrun_cuda\\.so: [^;]*No such file[^;]*";
  EXPECT_THAT(LoadCudaPlugin().status().message(),
              MatchesRegex("the CUDA plugin cannot be loaded: /[^;]*/tests/" + why +
                           "; /[^;]*/tests/\\.\\./lib/" + why + "; " + why));
}

}  // namespace
}  // namespace ds::device
