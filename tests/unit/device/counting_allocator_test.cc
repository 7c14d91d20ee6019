#include "runtime/device/counting_allocator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

namespace ds::device {
namespace {

// One allocator for all tests of this program: it cannot be taken out again.
CountingAllocator& Counter() {
  CountingAllocator* const installed = CountingAllocator::Find();
  return installed != nullptr ? *installed : CountingAllocator::Install();
}

TEST(CountingAllocatorTest, CountsTheMemoryOfTensors) {
  CountingAllocator& counter = Counter();
  const std::int64_t before = counter.BytesOut();
  {
    const at::Tensor a = at::empty({1000}, at::kFloat);
    EXPECT_EQ(counter.BytesOut() - before, 4000);
    const at::Tensor view = a.narrow(0, 10, 10);
    EXPECT_EQ(counter.BytesOut() - before, 4000);
    const at::Tensor b = at::zeros({3}, at::kLong);
    EXPECT_EQ(counter.BytesOut() - before, 4024);
  }
  EXPECT_EQ(counter.BytesOut(), before);
}

TEST(CountingAllocatorTest, PeakIsTheMostHeldSinceItsReset) {
  CountingAllocator& counter = Counter();
  { const at::Tensor large = at::empty({1 << 20}, at::kByte); }
  counter.ResetPeak();
  const std::int64_t before = counter.BytesOut();
  { const at::Tensor small = at::empty({100}, at::kByte); }
  EXPECT_EQ(counter.PeakBytesOut() - before, 100);
}

TEST(CountingAllocatorTest, KeepsLibTorchsAlignment) {
  Counter();
  for (const int size : {1, 7, 64, 4097}) {
    const at::Tensor tensor = at::empty({size}, at::kByte);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 64, 0u);
  }
}

TEST(CountingAllocatorTest, EmptyTensorsAndResizingAreFine) {
  CountingAllocator& counter = Counter();
  const std::int64_t before = counter.BytesOut();
  at::Tensor tensor = at::empty({0}, at::kFloat);
  EXPECT_EQ(counter.BytesOut(), before);
  tensor.resize_({25});
  EXPECT_EQ(counter.BytesOut() - before, 100);
  tensor.storage().set_nbytes(0);
  tensor.storage().set_data_ptr_noswap(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
  EXPECT_EQ(counter.BytesOut(), before);
}

TEST(CountingAllocatorTest, TensorsFreedByAnotherThreadAreCounted) {
  CountingAllocator& counter = Counter();
  const std::int64_t before = counter.BytesOut();
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 100; ++i) tensors.push_back(at::empty({i + 1}, at::kInt));
  std::jthread([&] { tensors.clear(); }).join();
  EXPECT_EQ(counter.BytesOut(), before);
}

}  // namespace
}  // namespace ds::device
