#include "runtime/zero/storage/quantized_source.h"

#include <ATen/ops/empty.h>

#include "runtime/base/check.h"
#include "runtime/zero/storage/block_quantization.h"
#include "runtime/zero/storage/store_source.h"

namespace ds::zero {
namespace {

constexpr QuantizedBits kBits = QuantizedBits::k8;

// Calls visit(first, count) for runs of blocks that differ between `a` and `b`.
template <typename Visit>
void ForEachChange(const at::Tensor& a, const at::Tensor& b, Visit visit) {
  const at::Tensor changes =
      a.ne(b).view({-1, kQuantizationBlock}).any(/*dim=*/1).cpu().contiguous();
  const bool* const changed = changes.const_data_ptr<bool>();
  for (std::int64_t block = 0; block < changes.numel();) {
    std::int64_t end = block;
    while (end < changes.numel() && changed[end]) ++end;
    if (end > block) visit(block * kQuantizationBlock, (end - block) * kQuantizationBlock);
    block = end + 1;
  }
}

class QuantizedSource : public checkpoint::TensorSource {
 public:
  QuantizedSource(Store& store, std::int64_t count, const FlatRange& range, at::ScalarType dtype)
      : store_(store), all_(count), range_(range), dtype_(dtype) {
    DS_CHECK(count % kQuantizationBlock == 0);
  }

  std::int64_t count() const override { return range_.count; }
  at::ScalarType dtype() const override { return dtype_; }

  Status Read(std::int64_t first, std::int64_t count, const TakeBytes& take) override {
    if (count == 0) return take({});
    return Use(first, count, Access::kRead, [&](const at::Tensor& bytes, const FlatRange& asked) {
      const FlatRange blocks = BlocksOf(asked);
      const at::Tensor values = Take(bytes, blocks);
      return checkpoint::SourceOf(values.narrow(0, asked.start - blocks.start, asked.count))
          ->Read(0, asked.count, take);
    });
  }
  Status Write(std::int64_t first, std::int64_t count, const FillBytes& fill) override {
    if (count == 0) return fill({});
    return Use(first, count, Access::kUpdate, [&](const at::Tensor& bytes, const FlatRange& asked) {
      const FlatRange blocks = BlocksOf(asked);
      const at::Tensor old = Take(bytes, blocks), values = old.clone();
      DS_RETURN_IF_ERROR(
          checkpoint::SourceOf(values.narrow(0, asked.start - blocks.start, asked.count))
              ->Write(0, asked.count, fill));
      ForEachChange(old, values, [&](std::int64_t start, std::int64_t changed) {
        Quantize(values.narrow(0, start, changed), kBits, bytes, {blocks.start + start, all_});
      });
      return OkStatus();
    });
  }

 private:
  // Returns the range of full blocks that contains the elements.
  static FlatRange BlocksOf(const FlatRange& range) {
    const std::int64_t start = range.start / kQuantizationBlock * kQuantizationBlock;
    const std::int64_t blocks = (range.end() - start + kQuantizationBlock - 1) / kQuantizationBlock;
    return {start, blocks * kQuantizationBlock};
  }
  at::Tensor Take(const at::Tensor& bytes, const FlatRange& blocks) const {
    const at::Tensor values = at::empty({blocks.count}, bytes.options().dtype(dtype_));
    Dequantize(bytes, kBits, values, {blocks.start, all_});
    return values;
  }
  // Calls use(bytes, range) with all bytes of the store, on their own tier.
  template <typename UseBytes>
  Status Use(std::int64_t first, std::int64_t count, Access access, UseBytes use) {
    return UseOnOwnTier(store_, store_.full_range(), access, [&](const at::Tensor& bytes) {
      return use(bytes, FlatRange{range_.start + first, count});
    });
  }

  Store& store_;
  const std::int64_t all_;
  const FlatRange range_;
  const at::ScalarType dtype_;
};

}  // namespace

std::shared_ptr<checkpoint::TensorSource> SourceOfQuantized(Store& store, std::int64_t count,
                                                            const FlatRange& range,
                                                            at::ScalarType dtype) {
  return std::make_shared<QuantizedSource>(store, count, range, dtype);
}

}  // namespace ds::zero
