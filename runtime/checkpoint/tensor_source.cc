#include "runtime/checkpoint/tensor_source.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace ds::checkpoint {
namespace {

std::span<const std::byte> BytesOf(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

std::span<std::byte> MutableBytesOf(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

class FullTensor : public TensorSource {
 public:
  explicit FullTensor(at::Tensor tensor) : tensor_(std::move(tensor)) {
    DS_CHECK_MSG(tensor_.defined() && tensor_.dim() == 1 && tensor_.is_contiguous(),
                 "a checkpoint's tensor is not 1-D and contiguous");
  }

  std::int64_t count() const override { return tensor_.numel(); }
  at::ScalarType dtype() const override { return tensor_.scalar_type(); }

  // Data on another device is copied through host memory.
  Status Read(std::int64_t first, std::int64_t count, const TakeBytes& take) override {
    return take(BytesOf(tensor_.narrow(0, first, count).cpu()));
  }

  Status Write(std::int64_t first, std::int64_t count, const FillBytes& fill) override {
    const at::Tensor range = tensor_.narrow(0, first, count);
    if (range.is_cpu()) return fill(MutableBytesOf(range));
    const at::Tensor host = at::empty({count}, range.options().device(at::kCPU));
    DS_RETURN_IF_ERROR(fill(MutableBytesOf(host)));
    range.copy_(host);
    return OkStatus();
  }

 private:
  const at::Tensor tensor_;
};

}  // namespace

std::shared_ptr<TensorSource> SourceOf(at::Tensor tensor) {
  return std::make_shared<FullTensor>(std::move(tensor));
}

StatusOr<at::Tensor> ReadAll(TensorSource& source) {
  const at::Tensor all = at::empty({source.count()}, source.dtype());
  DS_RETURN_IF_ERROR(source.Read(0, source.count(), [&](std::span<const std::byte> bytes) {
    std::copy(bytes.begin(), bytes.end(), MutableBytesOf(all).begin());
    return OkStatus();
  }));
  return all;
}

Status WriteAll(const at::Tensor& values, TensorSource& source) {
  DS_CHECK(values.dim() == 1 && values.numel() == source.count());
  const at::Tensor converted = values.to(at::kCPU, source.dtype()).contiguous();
  return source.Write(0, source.count(), [&](std::span<std::byte> bytes) {
    const std::span<const std::byte> from = BytesOf(converted);
    std::copy(from.begin(), from.end(), bytes.begin());
    return OkStatus();
  });
}

}  // namespace ds::checkpoint
