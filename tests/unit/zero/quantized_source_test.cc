#include "runtime/zero/storage/quantized_source.h"

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "runtime/zero/storage/block_quantization.h"

namespace ds::zero {
namespace {

constexpr std::int64_t kBlock = kQuantizationBlock;
constexpr std::int64_t kCount = 4 * kBlock;

class QuantizedSource : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  QuantizedSource()
      : values_(at::randn({kCount}).to(GetParam())),
        store_(context_, {CountQuantizedBytes(kCount, QuantizedBits::k8), at::kByte}) {
    Quantize(values_, QuantizedBits::k8, store_.Acquire().tensor());
  }
  std::shared_ptr<checkpoint::TensorSource> Source(const FlatRange& range) {
    return SourceOfQuantized(store_, kCount, range, GetParam());
  }
  at::Tensor Bytes() { return store_.Acquire().tensor().clone(); }

  device::MemoryLedger ledger_;
  Context context_{.ledger = &ledger_};
  at::Tensor values_;
  Store store_;
};

TEST_P(QuantizedSource, ReadsRangesThatBeginAndEndWithinBlocks) {
  at::Tensor all = at::empty_like(values_);
  Dequantize(Bytes(), QuantizedBits::k8, all);
  for (const FlatRange range :
       {FlatRange{0, kCount}, {100, kBlock}, {kBlock - 1, 2}, {kBlock, 1}}) {
    const auto source = Source(range);
    EXPECT_EQ(source->dtype(), GetParam());
    EXPECT_EQ(source->count(), range.count);
    EXPECT_TRUE(checkpoint::ReadAll(*source)->equal(all.narrow(0, range.start, range.count)))
        << range.start;
  }
}

// However often.
TEST_P(QuantizedSource, UnchangedWritesKeepTheStoredBytes) {
  const at::Tensor before = Bytes();
  for (int i = 0; i < 3; ++i) {
    const auto source = Source({50, kCount - 100});
    const at::Tensor read = checkpoint::ReadAll(*source).value();
    EXPECT_TRUE(checkpoint::WriteAll(read, *source).ok());
    EXPECT_TRUE(Bytes().equal(before));
  }
}

TEST_P(QuantizedSource, WritesTheBlocksThatChangeAndNoOthers) {
  const auto source = Source({0, kCount});
  at::Tensor values = checkpoint::ReadAll(*source).value();
  const at::Tensor fresh = at::randn({kBlock}).to(GetParam());
  const at::Tensor before = values.clone();
  values.narrow(0, kBlock, kBlock).copy_(fresh);
  EXPECT_TRUE(checkpoint::WriteAll(values, *source).ok());
  const at::Tensor after = checkpoint::ReadAll(*source).value();
  EXPECT_TRUE(after.narrow(0, 0, kBlock).equal(before.narrow(0, 0, kBlock)));
  EXPECT_TRUE(after.narrow(0, 2 * kBlock, kBlock).equal(before.narrow(0, 2 * kBlock, kBlock)));
  const at::Tensor bytes = at::empty({CountQuantizedBytes(kBlock, QuantizedBits::k8)}, at::kByte);
  Quantize(fresh, QuantizedBits::k8, bytes);
  at::Tensor expected = at::empty_like(fresh);
  Dequantize(bytes, QuantizedBits::k8, expected);
  EXPECT_TRUE(after.narrow(0, kBlock, kBlock).equal(expected));
}

INSTANTIATE_TEST_SUITE_P(Types, QuantizedSource, ::testing::Values(at::kFloat, at::kBFloat16));

}  // namespace
}  // namespace ds::zero
