#include "runtime/zero/storage/buffer_pool.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "runtime/device/memory_ledger.h"

namespace ds::zero {
namespace {

using device::MemoryTier;
using device::MemoryUse;

class BufferPoolTest : public ::testing::Test {
 protected:
  std::int64_t Booked() const { return ledger_.Bytes(MemoryUse::kCommBuffers, MemoryTier::kHost); }

  device::MemoryLedger ledger_;
  Context context_{.ledger = &ledger_};
};

TEST_F(BufferPoolTest, ViewsSeeTheValuesOfTheCurrentBuffer) {
  BufferPool pool(context_);
  PooledTensor pooled(pool, 64, at::kFloat, at::kCPU);
  pooled.Acquire();
  const at::Tensor view = pooled.tensor().narrow(0, 8, 4).view({2, 2});
  pooled.Release();
  EXPECT_EQ(view.storage().nbytes(), 0U);
  EXPECT_THROW(view.sum(), c10::Error) << "not a null pointer";
  EXPECT_THROW(view.fill_(1.0), c10::Error);
  for (const float value : {1.0F, 2.0F}) {
    pooled.Acquire();
    pooled.tensor().fill_(value);
    EXPECT_EQ(view.sum().item<float>(), 4 * value);
    pooled.Release();
  }
}

TEST_F(BufferPoolTest, SavedTensorsReadTheCurrentBuffer) {
  BufferPool pool(context_);
  PooledTensor pooled(pool, 64, at::kFloat, at::kCPU);
  pooled.Acquire();
  pooled.tensor().fill_(3.0);
  // A parameter: its storage is the pooled one, its version counter its own.
  const at::Tensor weight = at::ones({2, 2});
  weight.unsafeGetTensorImpl()->set_storage_keep_dtype(pooled.tensor().storage());
  at::Tensor input = at::ones({1, 2}).requires_grad_();
  const at::Tensor output = at::mm(input, weight).sum();
  pooled.Release();
  pooled.Acquire();
  pooled.tensor().fill_(3.0);
  output.backward();
  EXPECT_EQ(input.grad().sum().item<float>(), 12.0F);
}

TEST_F(BufferPoolTest, LayersTakeOneAnothersBuffers) {
  BufferPool pool(context_);
  PooledTensor layer1(pool, 64, at::kFloat, at::kCPU);
  PooledTensor layer2(pool, 64, at::kFloat, at::kCPU);
  const PooledTensor gradient(pool, 64, at::kFloat, at::kCPU);
  layer1.Acquire();
  const void* buffer = layer1.tensor().data_ptr();
  layer1.Release();
  EXPECT_EQ(Booked(), 64 * 4) << "kept";
  layer2.Acquire();
  EXPECT_EQ(layer2.tensor().data_ptr(), buffer);
  EXPECT_EQ(Booked(), 64 * 4);
}

TEST_F(BufferPoolTest, ABufferOfOneUnitIsKeptUntilAnotherSizeNeedsMemory) {
  BufferPool pool(context_);
  PooledTensor embedding(pool, 4096, at::kFloat, at::kCPU);
  PooledTensor gradient(pool, 4096, at::kFloat, at::kCPU);
  PooledTensor head(pool, 5120, at::kFloat, at::kCPU);
  embedding.Acquire();
  gradient.Acquire();
  EXPECT_EQ(Booked(), 2 * 4096 * 4);
  embedding.Release();
  gradient.Release();
  EXPECT_EQ(Booked(), 4096 * 4) << "one of the two";
  head.Acquire();
  EXPECT_EQ(Booked(), 5120 * 4);
}

TEST_F(BufferPoolTest, EndsWithNothingBooked) {
  {
    BufferPool pool(context_);
    PooledTensor a(pool, 64, at::kFloat, at::kCPU);
    PooledTensor b(pool, 64, at::kFloat, at::kCPU);
    const PooledTensor c(pool, 64, at::kFloat, at::kCPU);
    a.Acquire();
    b.Acquire();
    b.Release();
  }
  EXPECT_EQ(Booked(), 0);
}

}  // namespace
}  // namespace ds::zero
