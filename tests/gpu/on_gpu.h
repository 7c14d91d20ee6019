#pragma once

// OnGpu: a fixture whose tests run on the first GPU, and are skipped with the reason where there is
// none or its plugin is missing. `Base` is ::testing::Test or ::testing::TestWithParam<T>.

#include <gtest/gtest.h>

#include "runtime/device/rank_device.h"
#include "tests/support/requirement.h"

namespace ds::testing {

template <typename Base>
class OnGpu : public Base {
 protected:
  // Before the process's first tensor.
  static const StatusOr<device::RankDevice>& Opened() {
    static const auto opened = device::OpenRankDevice(device::DeviceChoice::kCuda, 0);
    return opened;
  }
  static void SetUpTestSuite() { Opened(); }
  void SetUp() override {
    if (!Opened().ok()) SkipWithout("gpu", "not run: " + Opened().status().message());
  }
};

}  // namespace ds::testing
