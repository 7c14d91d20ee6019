// What waits in a file comes back as it was.

#include "runtime/autograd/keeper.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "runtime/offload/file_tier.h"
#include "tests/support/program.h"

namespace ds::activation {
namespace {

class KeeperInAFile : public ::testing::Test {
 protected:
  testing::TemporaryFolder folder_;
  std::unique_ptr<offload::FileTier> tier_ =
      *offload::FileTier::Open({.folders = {folder_.path()}});
  const Keeper keeper_{KeepIn::kFile, tier_.get()};
};

TEST_F(KeeperInAFile, ReturnsKeptTensors) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kLong}) {
    const at::Tensor values = at::arange(3 * 1111, type).view({3, 1111}).transpose(0, 1);
    const SavedTensor saved = keeper_.Keep(values);
    EXPECT_TRUE(saved.Bring().equal(values));
    saved.Prefetch();
    const at::Tensor again = saved.Bring();
    EXPECT_TRUE(again.equal(values));
    EXPECT_EQ(again.scalar_type(), type);
  }
}

TEST_F(KeeperInAFile, ReturnedTensorsOutliveWaitingOnes) {
  SavedTensor saved = keeper_.Keep(at::arange(5000, at::kFloat));
  const at::Tensor brought = saved.Bring();
  saved = keeper_.Keep(at::ones({5000}));
  EXPECT_TRUE(brought.equal(at::arange(5000, at::kFloat)));
}

TEST_F(KeeperInAFile, AddsUp) {
  SavedTensor sum;
  EXPECT_FALSE(sum.defined());
  for (int i = 1; i <= 3; ++i) keeper_.Add(at::ones({100}) * i, &sum);
  EXPECT_TRUE(sum.Bring().equal(at::ones({100}) * 6));
}

TEST(Keeper, OnTheDeviceMakesNoCopy) {
  for (const Keeper& keeper : {Keeper(), Keeper(KeepIn::kHost)}) {
    EXPECT_FALSE(keeper.Moves(c10::kCPU));
    const at::Tensor values = at::ones({10});
    SavedTensor saved = keeper.Keep(values);
    EXPECT_EQ(saved.Bring().data_ptr(), values.data_ptr());
    keeper.Add(at::ones({10}), &saved);
    EXPECT_TRUE(saved.Bring().equal(at::ones({10}) * 2));
  }
}

}  // namespace
}  // namespace ds::activation
